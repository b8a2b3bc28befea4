// SPDX-License-Identifier: Apache-2.0

package command

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/program"
)

// config is what flags and environment say, before it is checked as a whole.
type config struct {
	all []setting

	socket             string
	podsDir            string
	relaySocket        string
	relayPath          string
	relayOutside       bool
	probeAddress       string
	probePort          int
	logLevel           string
	logFormat          string
	nodeName           string
	clusterID          string
	orphans            time.Duration
	verifyCloud        bool
	podsLimit          int
	kubelet            string
	pauseImage         string
	forwarder          int
	proxyTimeout       time.Duration
	initdata           string
	podImages          []string
	insecureRegistries []string
	authFile           string
	scratch            bool

	caFile, certFile, keyFile string
	skipVerify, disableTLS    bool
	tlsMin                    string
	tlsSuites                 []string

	tunnelType    string
	vxlanPort     int
	vxlanMinID    int
	hostInterface string
	externalNet   bool
	podSubnets    []string
	sourceCheck   string
	podMetadata   bool
	// providerFlag returns the value of a flag of the provider, empty if it has none of the name.
	providerFlag func(name string) string
}

// setting is one flag with its environment variable. The flag wins over the
// variable, which wins over the default; an empty variable counts as unset.
type setting struct {
	group string
	// flag or env may be empty, not both.
	flag, env string
	usage     string
	value     *value
}

// value is a flag.Value that knows what it accepts.
type value struct {
	kind  string // placeholder in help, e.g. DURATION
	set   func(string) error
	shown func() string
	def   string // shown before anything was set
	bool  bool
}

func (v *value) Set(text string) error { return v.set(text) }
func (v *value) IsBoolFlag() bool      { return v.bool }

// String implements flag.Value. Package flag also calls it on a zero value.
func (v *value) String() string {
	if v == nil || v.shown == nil {
		return ""
	}
	return v.shown()
}

func newValue(kind string, set func(string) error, shown func() string) *value {
	return &value{kind: kind, set: set, shown: shown, def: shown()}
}

func text(field *string, def string) *value {
	*field = def
	return newValue("TEXT", func(s string) error { *field = s; return nil }, func() string { return *field })
}

func choice(field *string, def string, known ...string) *value {
	*field = def
	return newValue(strings.Join(known, "|"), func(s string) error {
		for _, one := range known {
			if s == one {
				*field = s
				return nil
			}
		}
		return fmt.Errorf("want %s", strings.Join(known, " or "))
	}, func() string { return *field })
}

func number(field *int, def, least, most int) *value {
	*field = def
	return newValue("N", func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return fmt.Errorf("want a whole number from %d to %d", least, most)
		}
		*field = n
		return nil
	}, func() string { return strconv.Itoa(*field) })
}

func duration(field *time.Duration, def time.Duration) *value {
	*field = def
	return newValue("DURATION", func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return fmt.Errorf("want a duration with its unit, such as 90s or 5m")
		}
		*field = d
		return nil
	}, func() string { return shortDuration(*field) })
}

// shortDuration writes 5m, not 5m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func toggle(field *bool) *value {
	v := newValue("", func(s string) error {
		switch strings.ToLower(s) {
		case "1", "true":
			*field = true
		case "0", "false", "no", "off":
			*field = false
		default:
			return fmt.Errorf("want true or false")
		}
		return nil
	}, func() string { return strconv.FormatBool(*field) })
	v.bool = true
	return v
}

func list(field *[]string) *value {
	return newValue("A,B,...", func(s string) error {
		*field = nil
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				*field = append(*field, part)
			}
		}
		return nil
	}, func() string { return strings.Join(*field, ",") })
}

const (
	groupDaemon  = "Daemon"
	groupVM      = "Pod VMs"
	groupTLS     = "TLS between node and VM"
	groupNetwork = "Pod network"
	groupCluster = "Kubernetes (without effect unless NODE_NAME is set and there is a kubeconfig or a service account)"
	groupLater   = "Accepted without effect"
)

// settings returns every flag and variable of the adaptor itself. Names and defaults
// of those with an environment variable are upstream's.
func (c *config) settings() []setting {
	return append(c.daemonSettings(), c.podSettings()...)
}

func (c *config) daemonSettings() []setting {
	hostname, _ := os.Hostname()
	return []setting{
		{groupDaemon, "socket", "REMOTE_HYPERVISOR_ENDPOINT", "unix socket for shims (0600)", text(&c.socket, "/run/peerpod/hypervisor.sock")},
		{groupDaemon, "pods-dir", "PODS_DIR", "folder with one folder for each sandbox: its record and its agent socket", text(&c.podsDir, "/run/peerpod/pods")},
		{groupDaemon, "relay-socket", "", "control socket of agent-relay; default: relay.sock beside -socket", text(&c.relaySocket, "")},
		{groupDaemon, "relay-path", "", "agent-relay program; default: beside this program, then PATH", text(&c.relayPath, "")},
		{groupDaemon, "relay-external", "RELAY_EXTERNAL", "agent-relay is started by somebody else, as in a DaemonSet of its own: wait for its socket", toggle(&c.relayOutside)},
		{groupDaemon, "", "PROBE_ADDRESS", "address for PROBE_PORT; in a cluster that of the node lets Prometheus reach /metrics", text(&c.probeAddress, "127.0.0.1")},
		{groupDaemon, "", "PROBE_PORT", "port for /startup, /healthz, /readyz and /metrics; 0: none", number(&c.probePort, 8000, 0, 65535)},
		{groupDaemon, "log-level", "", "least level that is logged", choice(&c.logLevel, "info", "debug", "info", "warn", "error")},
		{groupDaemon, "log-format", "", "form of log lines", choice(&c.logFormat, "text", "text", "json")},
		{groupDaemon, "node-name", "NODE_NAME", "name of this node in owner tags; default: the host name", text(&c.nodeName, hostname)},
		{groupDaemon, "cluster-id", "CLUSTER_ID", "name of this cluster in owner tags; without it no instance is deleted that is not on record here. Default: the machine id, in Kubernetes the UID of namespace kube-system", text(&c.clusterID, "")},
		{groupDaemon, "orphan-timeout", "ORPHAN_TIMEOUT", "remove a sandbox that had no client for so long; 0: never", duration(&c.orphans, 10*time.Minute)},
		{groupDaemon, "cloud-config-verify", "CLOUD_CONFIG_VERIFY", "check the provider's configuration against the cloud at start; exit if it is wrong", toggle(&c.verifyCloud)},
	}
}

func (c *config) podSettings() []setting {
	return []setting{
		{groupVM, "forwarder-port", "FORWARDER_PORT", "TCP port of agent-protocol-forwarder in the VM", number(&c.forwarder, 15150, 1, 65535)},
		{groupVM, "proxy-timeout", "PROXY_TIMEOUT", "longest wait for the VM's agent", duration(&c.proxyTimeout, 5*time.Minute)},
		{groupVM, "initdata", "INITDATA", "initdata of pods without their own: base64 of gzip of TOML", text(&c.initdata, "")},
		{groupVM, "pod-images", "POD_IMAGES", "VM images that pods may name by annotation: NAME, NAME* or *; a pod that names another one is refused. Empty: no pod may name one, since whoever chooses the image is root in its VM, on the network of the nodes", list(&c.podImages)},
		{groupVM, "insecure-registries", "INSECURE_REGISTRIES", "registries that VMs may speak plain HTTP to where they do not answer HTTPS: HOST (any port), HOST:PORT, or @node for this node as its VMs see it. Others need TLS, also at private addresses", list(&c.insecureRegistries)},
		{groupVM, "auth-file", "AUTH_FILE", "registry credentials for the VM, in the form of Docker's config.json; read for each VM, at most 12288 bytes", text(&c.authFile, "")},
		{groupVM, "enable-scratch-space", "ENABLE_SCRATCH_SPACE", "let the VM encrypt a scratch disk for images", toggle(&c.scratch)},

		{groupTLS, "ca-cert-file", "CACERT_FILE", "own CA: verifies the VM, whose image holds a certificate for podvm-server; with -cert-file and -cert-key. Without it each pod gets certificates of its own", text(&c.caFile, "")},
		{groupTLS, "cert-file", "CERT_FILE", "own CA: this node's certificate", text(&c.certFile, "")},
		{groupTLS, "cert-key", "CERT_KEY", "own CA: this node's private key", text(&c.keyFile, "")},
		{groupTLS, "tls-skip-verify", "TLS_SKIP_VERIFY", "accept any certificate of the VM (insecure)", toggle(&c.skipVerify)},
		{groupTLS, "tls-min-version", "TLS_MIN_VERSION", "least version; default VersionTLS12", choice(&c.tlsMin, "", "VersionTLS12", "VersionTLS13")},
		{groupTLS, "tls-cipher-suites", "TLS_CIPHER_SUITES", "IANA names; not with VersionTLS13", list(&c.tlsSuites)},
		{groupTLS, "disable-tls", "", "plain TCP between node and VM (insecure)", toggle(&c.disableTLS)},

		{groupNetwork, "tunnel-type", "TUNNEL_TYPE", "kind of tunnel between node and VM", choice(&c.tunnelType, "vxlan", "vxlan")},
		{groupNetwork, "vxlan-port", "VXLAN_PORT", "UDP port of the tunnels", number(&c.vxlanPort, 4789, 1, 65535)},
		{groupNetwork, "vxlan-min-id", "", "lowest tunnel id (VNI) of this node", number(&c.vxlanMinID, 555000, 1, 1<<24-1)},
		{groupNetwork, "tunnel-source-check", "TUNNEL_SOURCE_CHECK", "drop what others than node and VM send into a tunnel; auto: unless VMs are reached by public or floating addresses (-use-public-ip, -floating-network-id), which a gateway translates", choice(&c.sourceCheck, "auto", "auto", "true", "false")},
		{groupNetwork, "host-interface", "", "interface that carries the tunnels; default: the one with the default route. Another one needs VMs with two interfaces", text(&c.hostInterface, "")},
		{groupNetwork, "ext-network-via-podvm", "EXTERNAL_NETWORK_VIA_PODVM", "pods reach the outside from their VM, not through the node (experimental)", toggle(&c.externalNet)},
		{groupNetwork, "pod-metadata-access", "POD_METADATA_ACCESS", "with -ext-network-via-podvm: let pods reach the cloud's metadata service, which tells them the VM's credentials", toggle(&c.podMetadata)},
		{groupNetwork, "pod-subnet-cidrs", "POD_SUBNET_CIDRS", "networks that pods reach through the node with -ext-network-via-podvm", list(&c.podSubnets)},

		{groupCluster, "peerpods-limit-per-node", "PEERPODS_LIMIT_PER_NODE", "pod VMs that the node advertises; negative: do not advertise", number(&c.podsLimit, 10, -1<<31, 1<<31-1)},
		{groupCluster, "kubelet-kubeconfig", "KUBELET_KUBECONFIG", "kubeconfigs of the kubelet, the first that is there counts: image pull secrets are read as the node, which may read those of its own pods only. Without one the adaptor's service account needs a Role", text(&c.kubelet, "")},

		{groupLater, "pause-image", "PAUSE_IMAGE", "pause runs in the VM", text(&c.pauseImage, "")},
		c.ignored("RUNTIMECLASS_NAME", "the adaptor's readiness does not depend on pods; the webhook's class is TARGET_RUNTIMECLASS"),
		c.ignored("CRI_RUNTIME_ENDPOINT", "images are pulled in the VM"),
		c.ignored("AA_KBC_PARAMS", "what attests in a VM is configured by initdata (INITDATA)"),
		c.ignored("SECURE_COMMS", "mutual TLS guards the way to the VM, with certificates of each pod's own"),
		c.ignored("SECURE_COMMS_NO_TRUSTEE", "see SECURE_COMMS"),
		c.ignored("SECURE_COMMS_KBS_ADDR", "see SECURE_COMMS"),
		c.ignored("SECURE_COMMS_INBOUNDS", "see SECURE_COMMS"),
		c.ignored("SECURE_COMMS_OUTBOUNDS", "see SECURE_COMMS"),
		c.ignored("SECURE_COMMS_PP_INBOUNDS", "see SECURE_COMMS"),
		c.ignored("SECURE_COMMS_PP_OUTBOUNDS", "see SECURE_COMMS"),
	}
}

// ignored returns a setting for a variable of other versions that nothing here reads.
func (*config) ignored(env, why string) setting {
	return setting{groupLater, "", env, why, text(new(string), "")}
}

// withoutEffect returns advice for each setting that was given and has no effect. A
// setting that is off needs none.
func withoutEffect(settings []setting) (warnings []string) {
	for _, s := range settings {
		if given := s.value.String(); s.group == groupLater && given != "" && !strings.EqualFold(given, "false") {
			warnings = append(warnings, fmt.Sprintf("%s has no effect and can be removed: %s", s.env, s.usage))
		}
	}
	return warnings
}

// describe lists settings for the log, without long values.
func describe(settings []setting) []any {
	var attrs []any
	for _, s := range settings {
		name, shown := s.flag, s.value.String()
		if name == "" {
			name = s.env
		}
		if len(shown) > 100 {
			shown = fmt.Sprintf("(%d bytes)", len(shown))
		}
		attrs = append(attrs, name, shown)
	}
	return attrs
}

// loadEnv applies the environment.
func loadEnv(settings []setting, getenv func(string) string) error {
	for _, s := range settings {
		given := ""
		if s.env != "" {
			given = getenv(s.env)
		}
		if given == "" {
			continue
		}
		if err := s.value.Set(given); err != nil {
			return program.Usagef("environment variable %s=%q: %v", s.env, given, err)
		}
	}
	return nil
}

// register defines the flags beside those of a provider. A provider that
// defines a flag of ours shares it: its value is copied by shared.
func register(fs *flag.FlagSet, settings []setting) (shared []setting, err error) {
	for _, s := range settings {
		switch {
		case s.flag == "":
		case fs.Lookup(s.flag) == nil:
			fs.Var(s.value, s.flag, s.usage)
		case s.flag == "cluster-id": // ibmcloud has one of its own, with the same meaning
			shared = append(shared, s)
		default:
			return nil, fmt.Errorf("the provider defines the flag -%s, which is the adaptor's", s.flag)
		}
	}
	return shared, nil
}

// finish fills in defaults that depend on other settings.
func (c *config) finish(getenv func(string) string) {
	if c.relaySocket == "" {
		c.relaySocket = filepath.Join(filepath.Dir(c.socket), "relay.sock")
	}
	inCluster := getenv("KUBERNETES_SERVICE_HOST") != "" || getenv("NODE_NAME") != "" && getenv("KUBECONFIG") != ""
	if c.clusterID == "" && !inCluster {
		c.clusterID = machineID()
	}
}

// checksSources returns the effective value of -tunnel-source-check with this
// provider.
func (c *config) checksSources() bool {
	if c.sourceCheck == "auto" {
		return c.providerFlag == nil || c.providerFlag("use-public-ip") != "true" && c.providerFlag("floating-network-id") == ""
	}
	return c.sourceCheck == "true"
}

// machineID returns the machine-id(5); empty if there is none.
func machineID() string {
	data, _ := os.ReadFile("/etc/machine-id")
	if id := strings.TrimSpace(string(data)); len(id) == 32 {
		return "machine-" + id
	}
	return ""
}
