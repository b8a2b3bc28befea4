// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor/command"
	"github.com/outrigger/outrigger/internal/upstream"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// upstreamAdaptor is what the chart of cloud-api-adaptor has for every provider: keys, and its defaults or
// what somebody may have set.
const upstreamAdaptor = `CACERT_FILE=/etc/certificates/ca.crt CERT_FILE=/etc/certificates/client.crt CERT_KEY=/etc/certificates/client.key
	CLOUD_CONFIG_VERIFY=false ENABLE_SCRATCH_SPACE=false FORWARDER_PORT=15150 INITDATA= PAUSE_IMAGE= PEERPODS_LIMIT_PER_NODE=12 PODS_DIR=/run/peerpod/pods
	PROXY_TIMEOUT=5m REMOTE_HYPERVISOR_ENDPOINT= TLS_SKIP_VERIFY=false TUNNEL_TYPE=vxlan VXLAN_PORT=4789
	EXTERNAL_NETWORK_VIA_PODVM=false POD_SUBNET_CIDRS= TLS_CIPHER_SUITES= TLS_MIN_VERSION=`

// upstreamProviders is the same for each of its providers: open settings, then those of its Secret.
var upstreamProviders = map[string][2]string{
	"alibabacloud": {`DISABLECVM=false IMAGEID=m-1 KEYNAME= PODVM_INSTANCE_TYPE=ecs.g8i.xlarge REGION=cn-beijing SECURITY_GROUP_IDS=sg-1 SYSTEM_DISK_SIZE=40 TAGS= USE_PUBLIC_IP=false VSWITCH_ID=vsw-1`,
		`ALIBABACLOUD_ACCESS_KEY_ID=k ALIBABACLOUD_ACCESS_KEY_SECRET=s ALIBABACLOUD_SECURITY_TOKEN=`},
	"aws": {`AWS_REGION=eu-west-1 AWS_SG_IDS=sg-0123456789abcdef0 AWS_SUBNET_ID=subnet-0123456789abcdef0 DISABLECVM=false PODVM_AMI_ID=ami-0123456789abcdef0 PODVM_INSTANCE_TYPE=m6a.large PODVM_INSTANCE_TYPES=
		PODVM_LAUNCHTEMPLATE_NAME=kata ROOT_VOLUME_SIZE=30 SSH_KP_NAME= TAGS=a=b,c=d USE_PODVM_LAUNCHTEMPLATE=false USE_PUBLIC_IP=false`,
		`AWS_ACCESS_KEY_ID=k AWS_SECRET_ACCESS_KEY=s AWS_SESSION_TOKEN=`},
	"azure": {`AZURE_IMAGE_ID=/CommunityGalleries/g/Images/i AZURE_INSTANCE_SIZE=Standard_DC2as_v5 AZURE_INSTANCE_SIZES= AZURE_NSG_ID= AZURE_REGION=eastus AZURE_RESOURCE_GROUP=g AZURE_SUBNET_ID=/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/n/subnets/s
		AZURE_SUBSCRIPTION_ID=00000000-0000-0000-0000-000000000001 DISABLECVM=false ENABLE_SECURE_BOOT=false ROOT_VOLUME_SIZE=0 SSH_USERNAME=peerpod TAGS= USE_PUBLIC_IP=false`,
		`AZURE_CLIENT_ID=00000000-0000-0000-0000-000000000002 AZURE_CLIENT_SECRET=s AZURE_TENANT_ID=00000000-0000-0000-0000-000000000003`},
	"byom": {`MAX_RANGE_IPS=100 POOL_CONFIGMAP_NAME=byom-ip-pool-state POOL_NAMESPACE= SSH_HOST_KEY_ALLOWLIST_DIR= SSH_PRIV_KEY_PATH=/root/.ssh/id_rsa
		SSH_PUB_KEY_PATH=/root/.ssh/id_rsa.pub SSH_TIMEOUT=30 SSH_USERNAME=peerpod VM_POOL_IPS=192.0.2.1`, `id_rsa=PRIVATE id_rsa_pub=PUBLIC`},
	"gcp": {`DISABLECVM=false GCP_CONFIDENTIAL_TYPE= GCP_DISK_TYPE=pd-standard GCP_INSTANCE_TYPES= GCP_MACHINE_TYPE=e2-medium GCP_NETWORK=n GCP_PROJECT_ID=project-1 GCP_SUBNETWORK=
		GCP_ZONE=us-central1-a PODVM_IMAGE_NAME=i ROOT_VOLUME_SIZE=10 TAGS= USE_PUBLIC_IP=false`, `GCP_CREDENTIALS={}`},
	"ibmcloud": {`DISABLECVM=true IBMCLOUD_CLUSTER_ID= IBMCLOUD_DEDICATED_HOST_GROUP_IDS= IBMCLOUD_DEDICATED_HOST_IDS=
		IBMCLOUD_IAM_ENDPOINT=https://iam.cloud.ibm.com/identity/token IBMCLOUD_PODVM_IMAGE_ID=i IBMCLOUD_PODVM_INSTANCE_PROFILE_LIST= IBMCLOUD_PODVM_INSTANCE_PROFILE_NAME=bx2-2x8
		IBMCLOUD_RESOURCE_GROUP_ID= IBMCLOUD_SECURITY_GROUP_IDS= IBMCLOUD_SSH_KEY_ID= IBMCLOUD_VPC_ENDPOINT= IBMCLOUD_VPC_ID= IBMCLOUD_VPC_SUBNET_ID=0717-1 IBMCLOUD_ZONE=us-south-1 TAGS=`,
		`IBMCLOUD_API_KEY=k IBMCLOUD_IAM_PROFILE_ID=`},
	"ibmcloudpowervs": {`POWERVS_BUILD_TIMEOUT= POWERVS_IMAGE_ID=i POWERVS_MEMORY=2 POWERVS_NETWORK_ID=n POWERVS_PROCESSORS=0.5 POWERVS_PROCESSOR_TYPE=shared
		POWERVS_SERVICE_INSTANCE_ID=s POWERVS_SSH_KEY_NAME= POWERVS_SYSTEM_TYPE=s922 POWERVS_ZONE=z USE_PUBLIC_IP=false`, `IBMCLOUD_API_KEY=k`},
	"libvirt": {`DISABLECVM=true LIBVIRT_CPU=2 LIBVIRT_CPUSET= LIBVIRT_EFI_FIRMWARE=/usr/share/OVMF/OVMF_CODE_4M.fd LIBVIRT_LAUNCH_SECURITY= LIBVIRT_MEMORY=8192
		LIBVIRT_NET=default LIBVIRT_POOL=default LIBVIRT_ROOT_DISK_SIZE=10 LIBVIRT_URI=qemu+ssh://root@192.168.122.1/system?no_verify=1 LIBVIRT_VOL_NAME=podvm-base.qcow2`,
		`id_rsa=PRIVATE`},
	"vsphere": {`GOVC_DATACENTER=d GOVC_DATASTORE= GOVC_DRS=false GOVC_FOLDER= GOVC_HOST= GOVC_TEMPLATE=podvm-template GOVC_URL=https://v GOVC_VCLUSTER=
		SECURE_COMMS=false SECURE_COMMS_INBOUNDS= SECURE_COMMS_KBS_ADDR=kbs-service.trustee-operator-system:8080 SECURE_COMMS_NO_TRUSTEE=false
		SECURE_COMMS_OUTBOUNDS= SECURE_COMMS_PP_INBOUNDS= SECURE_COMMS_PP_OUTBOUNDS=`, `GOVC_PASSWORD=p GOVC_THUMBPRINT= GOVC_USERNAME=u`},
}

// upstreamValues are the other values of its chart, with its defaults but where another one shows more.
const upstreamValues = `
secrets: {mode: create, existingSecretName: "", existingSshKeySecretName: "", existingTlsSecretName: "",
  tlsCerts: {caCert: AUTHORITY, clientCert: CERTIFICATE, clientKey: KEY}}
image: {name: quay.io/confidential-containers/cloud-api-adaptor, tag: v9}
tlsProfile: {minVersion: VersionTLS12, cipherSuites: "TLS_A,TLS_B"}
limit: "10"
daemonset:
  updateStrategy: {maxUnavailable: 0, maxSurge: 1}
  podLabels: {azure.workload.identity/use: "true"}
  serviceAccount: {annotations: {example.com/role: node}}
resourceCtrl: {enabled: true, namePrefix: peerpodctrl-, image: {repository: quay.io/confidential-containers/peerpod-ctrl, tag: latest, pullPolicy: IfNotPresent},
  authProxy: {enabled: true, image: "registry.k8s.io/kubebuilder/kube-rbac-proxy:v0.14.0"}, podLabels: {of: controller}, serviceAccount: {annotations: {example.com/role: controller}}}
webhook: {enabled: true, namePrefix: peer-pods-webhook-, namespaceOverride: peer-pods-webhook-system, replicas: 2,
  image: {repository: quay.io/confidential-containers/peer-pods-webhook, tag: latest, pullPolicy: IfNotPresent},
  resources: {limits: {cpu: 500m, memory: 128Mi}, requests: {cpu: 10m, memory: 64Mi}},
  webhook: {targetRuntimeClass: kata-remote, podVMExtendedResource: kata.peerpods.io/vm, failurePolicy: Fail},
  tlsMinVersion: "", tlsCipherSuites: "", certManager: {enabled: true}}
alibabacloud: {rrsa: {enable: true}}
kata-deploy: {enabled: true, snapshotter: {setup: [nydus]}, defaultShim: {amd64: remote}, shims: {qemu: {enabled: false}, remote: {enabled: true}}}
`

func pairs(text string) map[string]string {
	all := map[string]string{}
	for pair := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(pair, "=")
		all[key] = value
	}
	return all
}

// upstreamFile writes the values of upstream's chart for a provider.
func upstreamFile(t *testing.T, name string) (file string, open, secret map[string]string) {
	t.Helper()
	open, secret = pairs(upstreamAdaptor+" "+upstreamProviders[name][0]), pairs(upstreamProviders[name][1])
	data, err := yaml.Marshal(map[string]any{"provider": name, "providerConfigs": map[string]any{name: open}, "providerSecrets": map[string]any{name: secret}})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, append(data, upstreamValues...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, open, secret
}

// TestChartTakesUpstreamsValues: every key is in the ConfigMap or the Secret, and the adaptor and its provider know it.
func TestChartTakesUpstreamsValues(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(upstreamProviders)) {
		t.Run(name, func(t *testing.T) {
			file, open, secret := upstreamFile(t, name)
			all := parse(t, output(t, tool(t, "helm"), helmArgs("", "--values", file)...))
			gotOpen, gotSecret := settings(t, all)
			open["CLOUD_PROVIDER"] = provider.Canonical(name)
			if diff := cmp.Diff(open, gotOpen); diff != "" {
				t.Errorf("ConfigMap (-want +got)\n%s", diff)
			}
			ssh := map[string]string{}
			for key, file := range map[string]string{"id_rsa": "id_rsa", "id_rsa_pub": "id_rsa.pub"} {
				if text, ok := secret[key]; ok {
					ssh[file] = text
				}
				delete(secret, key)
			}
			if diff := cmp.Diff(secret, gotSecret); diff != "" {
				t.Errorf("Secret (-want +got)\n%s", diff)
			}
			if len(ssh) > 0 {
				if diff := cmp.Diff(ssh, secretData(t, all, "ssh-key-secret")); diff != "" {
					t.Errorf("Secret ssh-key-secret (-want +got)\n%s", diff)
				}
			}
			checkUpstreamObjects(t, all)
		})
	}
}

func secretData(t *testing.T, all []*unstructured.Unstructured, name string) map[string]string {
	t.Helper()
	copied := find(t, all, "Secret "+name).DeepCopy()
	copied.SetName("peer-pods-secret")
	_, data := settings(t, []*unstructured.Unstructured{find(t, all, "ConfigMap peer-pods-cm"), copied})
	return data
}

// checkUpstreamObjects compares what upstreamValues say beside the settings.
func checkUpstreamObjects(t *testing.T, all []*unstructured.Unstructured) {
	t.Helper()
	at := func(object string, path ...string) any {
		value, _, err := unstructured.NestedFieldNoCopy(find(t, all, object).Object, path...)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	adaptor := "DaemonSet cloud-api-adaptor-daemonset"
	containers := at(adaptor, "spec", "template", "spec", "containers").([]any)
	for _, c := range []struct{ got, want any }{
		{at(adaptor, "spec", "updateStrategy", "rollingUpdate"), map[string]any{"maxUnavailable": float64(1), "maxSurge": float64(0)}},
		{at(adaptor, "spec", "template", "metadata", "labels", "azure.workload.identity/use"), "true"},
		{containers[0].(map[string]any)["image"], "localhost/outrigger/cloud-api-adaptor:v9"},
		{at("ServiceAccount cloud-api-adaptor", "metadata", "annotations", "example.com/role"), "node"},
		{at("Deployment peerpod-ctrl", "spec", "template", "metadata", "labels", "of"), "controller"},
		{at("ServiceAccount peerpod-ctrl", "metadata", "annotations", "example.com/role"), "controller"},
		{at("Certificate peerpods-webhook", "metadata", "name"), "peerpods-webhook"},
		{secretData(t, all, "certs-for-tls"), map[string]string{"ca.crt": "AUTHORITY", "tls.crt": "CERTIFICATE", "tls.key": "KEY", "client.crt": "CERTIFICATE", "client.key": "KEY"}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// TestUpstreamsValuesAreWarnedOf reads what NOTES.txt says, for which Helm itself wants a cluster.
func TestUpstreamsValuesAreWarnedOf(t *testing.T) {
	helm := tool(t, "helm")
	dir := filepath.Join(t.TempDir(), "chart")
	if out, err := exec.Command("cp", "-r", filepath.Join(root, "deploy/chart"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	notes := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\ndata:\n  text: {{ tpl (.Files.Get \"NOTES.txt\") . | quote }}\n"
	if err := os.WriteFile(filepath.Join(dir, "templates/notes.yaml"), []byte(notes), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "templates/NOTES.txt"), filepath.Join(dir, "NOTES.txt")); err != nil {
		t.Fatal(err)
	}
	render := func(args ...string) string {
		all := parse(t, output(t, helm, append([]string{"template", "outrigger", dir, "--kube-version", kubeVersion, "--values", "testdata/images.yaml"}, args...)...))
		text, _, _ := unstructured.NestedString(find(t, all, "ConfigMap notes").Object, "data", "text")
		return text
	}
	file, _, _ := upstreamFile(t, "vsphere")
	got := render("--values", file, "--set-string", "providerConfigs.vsphere.GOVC_VCLUSTER=c,providerConfigs.vsphere.GOVC_DRS=true,providerConfigs.vsphere.SECURE_COMMS_KBS_ADDR=")
	for _, want := range []string{"image.name has no effect", "daemonset.updateStrategy.maxSurge has no effect", "kata-deploy.enabled has no effect",
		"GOVC_VCLUSTER is an earlier name of GOVC_RESOURCE_POOL", "GOVC_DRS has no effect"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("not once %q in:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "has no effect") + strings.Count(got, "earlier name"); n != 5 {
		t.Errorf("%d warnings:\n%s", n, got)
	}
	if got := render("--set", "provider=libvirt"); strings.Contains(got, "upstream") || !strings.Contains(got, "kubectl label node") {
		t.Errorf("without such values:\n%s", got)
	}
}

// TestUpstreamsValuesAreRefused, those that would make pods that nobody expects.
func TestUpstreamsValuesAreRefused(t *testing.T) {
	helm := tool(t, "helm")
	for _, c := range []struct{ values, says string }{
		{"webhook.webhook.targetRuntimeClass=kata", "runtimeClass.name"},
		{"webhook.webhook.podVMExtendedResource=x/y", "podVMExtendedResource"},
		{"webhook.webhook.failurePolicy=Ignore", "failurePolicy"},
		{"webhook.tlsMinVersion=VersionTLS13", "tlsProfile.minVersion"},
		{"secrets.tlsCerts.caCert=x", "all three or none"},
		{"providerConfigs.libvirt.PODS_DIR=/var/pods", "PODS_DIR"},
		{"providerConfigs.libvirt.LIBVIRT_NETS=x", "LIBVIRT_NETS"},
		{"daemonset.updateStrategy.maxSurges=1", "maxSurges"},
	} {
		_, stderr, err := execute(helm, helmArgs("", "--set", "provider=libvirt,"+c.values)...)
		if err == nil || !strings.Contains(string(stderr), c.says) {
			t.Errorf("%s: %v, want %q:\n%s", c.values, err, c.says, stderr)
		}
	}
}

func TestUpstreamsLimit(t *testing.T) {
	for limit, want := range map[string]string{"limit=7": "7", "limit=0": "0", "text=10": "10", "text=0": "-1", "text=-1": "-1"} {
		flag, value := "--set", limit
		if text, ok := strings.CutPrefix(limit, "text="); ok {
			flag, value = "--set-string", "limit="+text
		}
		open, _ := settings(t, parse(t, chart(t, "libvirt", flag, value)))
		if open["PEERPODS_LIMIT_PER_NODE"] != want {
			t.Errorf("%s: %q, want %q", limit, open["PEERPODS_LIMIT_PER_NODE"], want)
		}
	}
}

// TestUpstreamsKeysAreKnown: what the table says of a key is so in the adaptor and in the schemas of the providers.
func TestUpstreamsKeysAreKnown(t *testing.T) {
	reads := func(name, key string) bool {
		if slices.Contains(command.Env(), key) {
			return true
		}
		schema, err := schemaOf(name)
		return err == nil && slices.ContainsFunc(schema.Fields, func(f config.Field) bool { return f.Env == key })
	}
	for _, k := range upstream.Keys() {
		switch {
		case k.Becomes == upstream.None && k.Name != "PAUSE_IMAGE" && reads(k.Provider, k.Name):
			t.Errorf("%s %s is read", k.Provider, k.Name)
		case k.Becomes == upstream.Same && !reads(k.Provider, k.Name):
			t.Errorf("%s %s is not read", k.Provider, k.Name)
		case k.Renamed() && !reads(k.Provider, k.Becomes):
			t.Errorf("%s %s: %s is not read", k.Provider, k.Name, k.Becomes)
		}
	}
	for name, tables := range upstreamProviders {
		for key := range pairs(upstreamAdaptor + " " + tables[0] + " " + strings.ReplaceAll(tables[1], "id_rsa", "ssh")) {
			of := upstream.KeysOf(provider.Canonical(name))
			if !strings.HasPrefix(key, "ssh") && !slices.ContainsFunc(of, func(k upstream.Key) bool { return k.Name == key }) {
				t.Errorf("the table has no %s of %s", key, name)
			}
		}
	}
}

// earlierKeys are values of keys that upstream's chart does not have, or not any more.
var earlierKeys = map[string]string{
	"AA_KBC_PARAMS": "cc_kbc::http://192.0.2.9:8080", "CRI_RUNTIME_ENDPOINT": "/run/cri-runtime.sock", "PEER_PODS_DIR": "/run/peerpod/pods", "RUNTIMECLASS_NAME": "kata-remote",
	"ENABLE_SCRATCH_DISK": "true", "ENABLE_SCRATCH_ENCRYPTION": "true", "SECURE_COMMS": "true", "SECURE_COMMS_NO_TRUSTEE": "true", "SECURE_COMMS_INBOUNDS": "a:1",
	"SECURE_COMMS_OUTBOUNDS": "a:1", "SECURE_COMMS_PP_INBOUNDS": "a:1", "SECURE_COMMS_PP_OUTBOUNDS": "a:1", "PAUSE_IMAGE": "pause:3.9",
	"LIBVIRT_FIRMWARE": "/usr/share/OVMF/OVMF_CODE_4M.fd", "IBMCLOUD_VPC_SG_ID": "sg-1", "GOVC_VCLUSTER": "c", "GOVC_DRS": "true", "DUMMY_USER": "d", "DUMMY_SECRET": "d",
	"DOCKER_HOST": "tcp://192.0.2.9:2376", "DOCKER_TLS_VERIFY": "", "PODVM_INSTANCE_TYPES": "", "PROBE_PORT": "0",
}

// TestConfigMapsOfAllReleasesStart: with the keys that a release of upstream had, the adaptor gets as far as its socket. It
// warns once of each that has no effect or another name, and of nothing else.
func TestConfigMapsOfAllReleasesStart(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket") // a file, which ends the start
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	credentials := keysOnDisk(t, dir)
	for minor := 8; minor <= 22; minor++ {
		for _, name := range providersOf(minor) {
			t.Run(fmt.Sprintf("v0.%d/%s", minor, name), func(t *testing.T) {
				env, warned := releaseEnvironment(minor, name)
				maps.Copy(env, credentials)
				var stderr bytes.Buffer
				c := command.Command{Stdout: io.Discard, Stderr: &stderr, Getenv: func(key string) string { return env[key] }}
				code := c.Run([]string{name, "-pods-dir", filepath.Join(dir, "pods"), "-socket", socket})
				if code != 1 || !strings.Contains(stderr.String(), "not a socket") {
					t.Errorf("exit code %d:\n%s", code, &stderr)
				}
				for _, k := range warned {
					if n := strings.Count(stderr.String(), `msg="`+k.Warning()); n != 1 {
						t.Errorf("%s is warned of %d times", k.Name, n)
					}
				}
				if n := strings.Count(stderr.String(), "has no effect") + strings.Count(stderr.String(), "is an earlier name"); n != len(warned) {
					t.Errorf("%d warnings, want %d:\n%s", n, len(warned), &stderr)
				}
			})
		}
	}
}

// keysOnDisk makes what byom and gcp read when they start.
func keysOnDisk(t *testing.T, dir string) map[string]string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	account, err := json.Marshal(map[string]string{"type": "service_account", "project_id": "project-1", "client_email": "a@example.com", "private_key": string(private)})
	if err != nil {
		t.Fatal(err)
	}
	const cluster = `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "n"}}], "users": [{"name": "c", "user": {}}]}`
	file, kubeconfig := filepath.Join(dir, "id_rsa"), filepath.Join(dir, "kubeconfig")
	if err := errors.Join(os.WriteFile(kubeconfig, []byte(cluster), 0o600), os.WriteFile(file, private, 0o600), os.WriteFile(file+".pub", ssh.MarshalAuthorizedKey(public), 0o600)); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"GCP_CREDENTIALS": string(account), "SSH_PRIV_KEY_PATH": file, "SSH_PUB_KEY_PATH": file + ".pub", "KUBECONFIG": kubeconfig, "POOL_NAMESPACE": "n"}
}

// had reports whether a release had a key.
func had(minor int, k upstream.Key) bool {
	number := func(release string, none int) int {
		n, err := strconv.Atoi(strings.TrimPrefix(release, "v0."))
		if err != nil {
			return none
		}
		return n
	}
	return number(k.First, 23) <= minor && minor <= number(k.Last, 23)
}

// providersOf returns the providers of a release.
func providersOf(minor int) []string {
	all := map[string]bool{}
	for _, k := range upstream.Keys() {
		if k.Provider != "" && had(minor, k) {
			all[k.Provider] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// releaseEnvironment returns all keys of a release with values, and those that are warned of.
func releaseEnvironment(minor int, name string) (env map[string]string, warned []upstream.Key) {
	tables := upstreamProviders[name]
	if name == "ibmcloud-powervs" {
		tables = upstreamProviders["ibmcloudpowervs"]
	}
	known := pairs(upstreamAdaptor + " " + tables[0] + " " + tables[1])
	maps.Copy(known, earlierKeys)
	env = map[string]string{"CLOUD_PROVIDER": name}
	for _, k := range upstream.KeysOf(name) {
		if !had(minor, k) || strings.HasPrefix(k.Name, "CERT_") || k.Name == "CACERT_FILE" {
			continue
		}
		if env[k.Name] = known[k.Name]; known[k.Name] != "" && k.Warning() != "" && !strings.EqualFold(known[k.Name], "false") {
			warned = append(warned, k)
		}
	}
	env["CLOUD_PROVIDER"], env["PROBE_PORT"] = name, "0"
	return env, warned
}
