// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
)

// settings are what flags and environment say, before it is checked as a whole. Names and
// defaults of those with an environment variable are upstream's.
type settings struct {
	Socket       string        `group:"Daemon" flag:"socket" env:"REMOTE_HYPERVISOR_ENDPOINT" default:"/run/peerpod/hypervisor.sock" usage:"unix socket for shims (0600)"`
	PodsDir      string        `flag:"pods-dir" env:"PODS_DIR" default:"/run/peerpod/pods" usage:"folder with one folder for each sandbox: its record and its agent socket"`
	RelaySocket  string        `flag:"relay-socket" usage:"control socket of agent-relay; default: relay.sock beside -socket"`
	RelayPath    string        `flag:"relay-path" usage:"agent-relay program; default: beside this program, then PATH"`
	RelayOutside bool          `flag:"relay-external" env:"RELAY_EXTERNAL" default:"false" usage:"agent-relay is started by somebody else, as in a DaemonSet of its own: wait for its socket"`
	ProbeAddress string        `env:"PROBE_ADDRESS" default:"127.0.0.1" usage:"address for PROBE_PORT; in a cluster that of the node lets Prometheus reach /metrics"`
	ProbePort    int           `env:"PROBE_PORT" default:"8000" min:"0" max:"65535" usage:"port for /startup, /healthz, /readyz and /metrics; 0: none"`
	LogLevel     string        `flag:"log-level" default:"info" choices:"debug,info,warn,error" usage:"least level that is logged"`
	LogFormat    string        `flag:"log-format" default:"text" choices:"text,json" usage:"form of log lines"`
	NodeName     string        `flag:"node-name" env:"NODE_NAME" usage:"name of this node in owner tags; default: the host name"`
	Namespace    string        `env:"POD_NAMESPACE" usage:"namespace of peerpod-ctrl, where VMs of pools wait; without it pods take none"`
	ClusterID    string        `flag:"cluster-id" env:"CLUSTER_ID" usage:"name of this cluster in owner tags; without it no instance is deleted that is not on record here. Default: the machine id, in Kubernetes the UID of namespace kube-system"`
	Orphans      time.Duration `flag:"orphan-timeout" env:"ORPHAN_TIMEOUT" default:"10m" min:"0" usage:"remove a sandbox that had no client for so long; 0: never"`
	GuestSteps   bool          `flag:"peerpod-timeline" env:"PEERPOD_TIMELINE" default:"false" usage:"write the steps of guests into PeerPods as well, for kubectl outrigger timeline: one more write to the API server for each pod"`
	VerifyCloud  bool          `flag:"cloud-config-verify" env:"CLOUD_CONFIG_VERIFY" default:"false" usage:"check the provider's configuration against the cloud at start; exit if it is wrong"`

	Forwarder          int           `group:"Pod VMs" flag:"forwarder-port" env:"FORWARDER_PORT" default:"15150" min:"1" max:"65535" usage:"TCP port of agent-protocol-forwarder in the VM"`
	ProxyTimeout       time.Duration `flag:"proxy-timeout" env:"PROXY_TIMEOUT" default:"5m" min:"0" usage:"longest wait for the VM's agent"`
	Initdata           string        `flag:"initdata" env:"INITDATA" usage:"initdata of pods without their own: base64 of gzip of TOML"`
	PodImages          []string      `flag:"pod-images" env:"POD_IMAGES" usage:"VM images that pods may name by annotation: NAME, NAME* or *; a pod that names another one is refused. Empty: no pod may name one, since whoever chooses the image is root in its VM, on the network of the nodes"`
	InsecureRegistries []string      `flag:"insecure-registries" env:"INSECURE_REGISTRIES" usage:"registries that VMs may speak plain HTTP to where they do not answer HTTPS: HOST (any port), HOST:PORT, or @node for this node as its VMs see it. Others need TLS, also at private addresses"`
	AuthFile           string        `flag:"auth-file" env:"AUTH_FILE" usage:"registry credentials for the VM, in the form of Docker's config.json; read for each VM, at most 12288 bytes"`
	Scratch            bool          `flag:"enable-scratch-space" env:"ENABLE_SCRATCH_SPACE" default:"false" usage:"have the VM encrypt its scratch disk, for images and containers' files, with a key that only its memory has; a pod whose VM cannot does not start, and says why. A VM without a scratch disk has all that in memory"`

	PoolSize   int64    `group:"A pool on this node (without Kubernetes, where pools are PodVMPools)" flag:"pool-size" default:"0" min:"0" max:"1000" usage:"so many VMs that have booted wait for the next pods; 0: none"`
	PoolVCPUs  int64    `flag:"pool-vcpus" default:"0" min:"0" usage:"virtual CPUs of a VM that waits; 0: as of a pod that asks for none"`
	PoolMemory int64    `flag:"pool-memory" default:"0" unit:"MiB" min:"0" usage:"memory of a VM that waits; 0: as of a pod that asks for none"`
	OtherPods  []string `flag:"other-pods-dirs" usage:"patterns of the -pods-dir of adaptors with the same -cluster-id and -node-name: instances of sandboxes on record there are not deleted"`

	CAFile     string   `group:"TLS between node and VM" flag:"ca-cert-file" env:"CACERT_FILE" usage:"own CA: verifies the VM, whose image holds a certificate for podvm-server; with -cert-file and -cert-key. Without it each pod gets certificates of its own"`
	CertFile   string   `flag:"cert-file" env:"CERT_FILE" usage:"own CA: this node's certificate"`
	KeyFile    string   `flag:"cert-key" env:"CERT_KEY" usage:"own CA: this node's private key"`
	Identity   string   `flag:"server-identity" env:"SERVER_IDENTITY" usage:"own CA: kbs:///REPOSITORY/TYPE/TAG at the key broker that the initdata names: certificate for podvm-server and its key, PEM, one after the other, in place of those in the image. User-data then takes no secret: a pod that names no broker, or has image pull secrets, does not start"`
	SkipVerify bool     `flag:"tls-skip-verify" env:"TLS_SKIP_VERIFY" default:"false" usage:"accept any certificate of the VM (insecure)"`
	TLSMin     string   `flag:"tls-min-version" env:"TLS_MIN_VERSION" choices:"VersionTLS12,VersionTLS13" usage:"least version; default VersionTLS12"`
	TLSSuites  []string `flag:"tls-cipher-suites" env:"TLS_CIPHER_SUITES" usage:"IANA names; not with VersionTLS13"`
	DisableTLS bool     `flag:"disable-tls" default:"false" usage:"plain TCP between node and VM (insecure)"`

	TunnelType    string   `group:"Pod network" flag:"tunnel-type" env:"TUNNEL_TYPE" default:"auto" choices:"auto,vxlan,tls" usage:"kind of tunnel between node and VM: vxlan is not encrypted, tls is; auto: tls for pods whose initdata names a key broker, vxlan for others"`
	VXLANPort     int      `flag:"vxlan-port" env:"VXLAN_PORT" default:"4789" min:"1" max:"65535" usage:"UDP port of the tunnels"`
	VXLANMinID    int      `flag:"vxlan-min-id" default:"555000" min:"1" max:"16777215" usage:"lowest tunnel id (VNI) of this node"`
	SourceCheck   string   `flag:"tunnel-source-check" env:"TUNNEL_SOURCE_CHECK" default:"auto" choices:"auto,true,false" usage:"drop what others than node and VM send into a tunnel; auto: unless VMs are reached by public or floating addresses (-use-public-ip, -floating-network-id), which a gateway translates"`
	HostInterface string   `flag:"host-interface" usage:"interface that carries the tunnels; default: the one with the default route. Another one needs VMs with two interfaces"`
	ExternalNet   bool     `flag:"ext-network-via-podvm" env:"EXTERNAL_NETWORK_VIA_PODVM" default:"false" usage:"pods reach the outside from their VM, not through the node (experimental)"`
	PodMetadata   bool     `flag:"pod-metadata-access" env:"POD_METADATA_ACCESS" default:"false" usage:"with -ext-network-via-podvm: let pods reach the cloud's metadata service, which tells them the VM's credentials"`
	PodSubnets    []string `flag:"pod-subnet-cidrs" env:"POD_SUBNET_CIDRS" usage:"networks that pods reach through the node with -ext-network-via-podvm"`

	PodsLimit int    `group:"Kubernetes (without effect unless NODE_NAME is set and there is a kubeconfig or a service account)" flag:"peerpods-limit-per-node" env:"PEERPODS_LIMIT_PER_NODE" default:"10" usage:"pod VMs that the node advertises; negative: do not advertise"`
	Kubelet   string `flag:"kubelet-kubeconfig" env:"KUBELET_KUBECONFIG" usage:"kubeconfigs of the kubelet, the first that is there counts: image pull secrets are read as the node, which may read those of its own pods only. Without one the adaptor's service account needs a Role"`

	PauseImage string `group:"Accepted without effect" flag:"pause-image" env:"PAUSE_IMAGE" usage:"pause runs in the VM"`

	all *config.Settings
	// providerFlag returns the value of a flag of the provider, empty if it has none of the name.
	providerFlag func(name string) string
}

// bind makes the settings those of flags and environment.
func (s *settings) bind() *config.Settings {
	s.all = config.Bind(s)
	return s.all
}

// Env returns the variables that the adaptor reads, those of providers left
// out. They are the keys that the ConfigMap peer-pods-cm may have.
func Env() []string {
	names := []string{"CLOUD_PROVIDER"}
	for f := range new(settings).bind().All() {
		if f.Env != "" {
			names = append(names, f.Env)
		}
	}
	for _, v := range plugin.Env() {
		names = append(names, v.Name)
	}
	return names
}

// describe lists settings for the log, without long values.
func describe(all *config.Settings) []any {
	var attrs []any
	for f, text := range all.All() {
		if len(text) > 100 {
			text = fmt.Sprintf("(%d bytes)", len(text))
		}
		attrs = append(attrs, f.Name, text)
	}
	return attrs
}

// finish fills in defaults that depend on other settings.
func (s *settings) finish(getenv func(string) string) {
	if s.RelaySocket == "" {
		s.RelaySocket = filepath.Join(filepath.Dir(s.Socket), "relay.sock")
	}
	inCluster := getenv("KUBERNETES_SERVICE_HOST") != "" || getenv("NODE_NAME") != "" && getenv("KUBECONFIG") != ""
	if s.ClusterID == "" && !inCluster {
		s.ClusterID = machineID()
	}
}

// checksSources returns the effective value of -tunnel-source-check with this
// provider.
func (s *settings) checksSources() bool {
	if s.SourceCheck == "auto" {
		return s.providerFlag == nil || s.providerFlag("use-public-ip") != "true" && s.providerFlag("floating-network-id") == ""
	}
	return s.SourceCheck == "true"
}

// checkPool refuses a pool whose VMs are on this machine and have more memory than it.
func (s *settings) checkPool() error {
	each, err := strconv.ParseInt(s.providerFlag("qemu-memory"), 10, 64)
	if err != nil { // it is another provider
		return nil
	}
	if s.PoolMemory > 0 {
		each = s.PoolMemory
	}
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return fmt.Errorf("memory of this machine: %w", err)
	}
	if has := int64(machine.Totalram) * int64(machine.Unit) >> 20; s.PoolSize*each > has {
		return fmt.Errorf("-pool-size %d: VMs with %d MiB of memory each need %d MiB, and this machine has %d", s.PoolSize, each, s.PoolSize*each, has)
	}
	return nil
}

// machineID returns the machine-id(5); empty if there is none.
func machineID() string {
	data, _ := os.ReadFile("/etc/machine-id")
	if id := strings.TrimSpace(string(data)); len(id) == 32 {
		return "machine-" + id
	}
	return ""
}
