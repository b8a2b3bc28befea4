// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/outrigger/outrigger/internal/luks"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/deployed"
	"github.com/outrigger/outrigger/test/kbs"
	"github.com/outrigger/outrigger/test/stand"
)

// The names are those of upstream's cases; the last two are ours. Each has its negative.
var attested = []scenario{
	{name: "CreateConfidentialPod", vms: 1, variant: true, play: confidentialPod},
	{name: "PodOnSpecificTee", vms: 2, variant: true, play: specificTee},
	{name: "RemoteAttestation", vms: 2, variant: true, play: remoteAttestation},
	{name: "KbsKeyRelease", vms: 1, play: keyRelease},
	{name: "KbsKeyReleaseForFailure", vms: 1, variant: true, play: keyReleaseForFailure},
	{name: "TrusteeOperatorKeyReleaseForSpecificKey", vms: 1, variant: true, play: specificKey},
	{name: "ImageDecryption", vms: 2, variant: true, play: imageDecryption},
	{name: "SealedSecret", vms: 2, variant: true, play: sealedSecret},
	{name: "InitDataMeasurement", vms: 2, variant: true, play: initDataMeasurement},
	{name: "NodeCannotSwap", vms: 1, variant: true, play: nodeCannotSwap},
	{name: "ServerIdentity", vms: 1, variant: true, alone: true, play: serverIdentity},
}

const (
	// tpmImage is the VM image that attests, in the provider's folder; its VMs have a TPM.
	tpmImage = "confidential.efi"
	// otherTPMImage is the same with another command line.
	otherTPMImage = "confidential-other.efi"

	annotationInitdata = "io.katacontainers.config.hypervisor.cc_init_data"
	hubURL             = "http://127.0.0.1:8006"
)

// needTPMs brings the images to the provider.
func (s *suite) needTPMs(t *testing.T) {
	t.Helper()
	s.needPolicies(t)
	s.own.tpm.Do(func() {
		pid := s.daemonPID(t, "provider-qemu")
		place := func(image []byte, name string) {
			if err := os.WriteFile(filepath.Join("/proc", pid, "root/usr/local/bin/podvm", name), image, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		image, err := os.ReadFile(filepath.Join(stand.Root(), "bin/podvm/confidential/podvm.efi"))
		if err != nil {
			t.Fatalf("%v; run: make podvm-confidential", err)
		}
		place(image, tpmImage)
		place(bytes.Replace(image, []byte("console=ttyS0 quiet "), []byte("console=ttyS0 debug "), 1), otherTPMImage)
	})
}

// newBroker returns one that is not started, at which VMs reach it and which knows the TPMs of this node: pods can name it.
func (s *suite) newBroker(t *testing.T) *kbs.Broker {
	t.Helper()
	return kbs.New(t, s.own.control.Address, deployed.HostFolder(s.own.node, "/var/lib/outrigger/qemu/tpm-ca/ca.pem"))
}

// broker starts one.
func (s *suite) broker(t *testing.T, o kbs.Options) *kbs.Broker {
	t.Helper()
	b := s.newBroker(t)
	b.Start(t, o)
	return b
}

// on has a pod run in a VM of the image that attests, with an initdata.
func (p *pod) on(t *testing.T, image string, data *cloudinit.InitData) *pod {
	t.Helper()
	text, err := data.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return p.annotate(annotationImage, image).annotate(annotationInitdata, text)
}

// get is a script that prints what the pod's hub answers, its body also if that is an error.
func get(paths ...string) string {
	script := ""
	for _, path := range paths {
		script += fmt.Sprintf("wget -q -O - '%s%s' 2>&1; echo; ", hubURL, path)
	}
	return script
}

// run runs a program of bin/ and returns its output.
func run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(stand.Binary(t, program), args...).CombinedOutput()
	return string(out), err
}

// confidentialPod: a pod in a VM that attests is ready, its PeerPod says that the broker has accepted the VM, and its owner
// verifies that. In a VM that cannot attest the same pod does not start.
func confidentialPod(t *testing.T, s *suite) {
	s.needTPMs(t)
	b := s.broker(t, kbs.Options{})
	data := b.InitData(t, "")
	s.start(t, s.pod("confidential", serve).container(served).on(t, tpmImage, data)) // probed through the encrypted tunnel
	claim := s.kubectl(t, "get", "peerpods", "-o", `jsonpath={.items[?(@.spec.podName=="confidential")].metadata.name}`)
	s.until(t, "peerpod/"+claim, `{.status.conditions[?(@.type=="Attested")].status}`, func(v string) bool { return v == "True" })
	b.Write(t, "initdata.toml", string(data.TOML()))
	verify := []string{"--kubeconfig", s.Kubeconfig, "verify", "pod", "confidential", "-n", s.namespace, "--initdata", b.Path("initdata.toml"), "--reference-values", b.Path("references.json")}
	out, err := run(t, "kubectl-outrigger", verify...)
	if err != nil {
		t.Errorf("verify: %v", err)
	}
	want(t, "verify", out, "✓ as the reference values have it: tpm_pcr04, tpm_pcr09, tpm_pcr11, tpm_pcr12")
	want(t, "verify", out, "✓ the VM has the initdata of sha256 "+data.Digest())
	want(t, "verify", out, "event PullImage")
	b.Write(t, "initdata.toml", string(b.InitData(t, "# another").TOML()))
	out, err = run(t, "kubectl-outrigger", verify...)
	if err == nil {
		t.Error("another initdata was verified")
	}
	want(t, "verify", out, "NOT VERIFIED")
	s.delete(t, "confidential")

	plain := s.pod("unattested", "sleep 100000")
	text, err := data.Encode()
	if err != nil {
		t.Fatal(err)
	}
	s.create(t, plain.annotate(annotationInitdata, text))
	want(t, "Event", s.warned(t, "unattested", "FailedCreatePodSandBox", "Failed"), "this VM image has none")
	s.delete(t, "unattested")
}

// specificTee: a key is for VMs with a TPM; one whose evidence is a sample's does not get it, although the broker takes such evidence.
func specificTee(t *testing.T, s *suite) {
	s.needTPMs(t)
	b := s.broker(t, kbs.Options{Sample: true, Policy: `package policy
default allow := false
allow if input.submods.cpu0["ear.veraison.annotated-evidence"].tpm
`})
	script := get("/info", "/cdh/resource/default/key/1")
	log := s.play(t, s.pod("with-tpm", script).on(t, tpmImage, b.InitData(t, "")))
	want(t, "log", log, `"tee":"tpm"`)
	want(t, "log", log, "sesame")
	log = s.play(t, s.pod("without-tpm", script).on(t, policyImage, b.InitData(t, "")))
	want(t, "log", log, `"tee":"sample"`)
	want(t, "log of the broker", b.Log(t), "the policy does not give it to this VM")
	if strings.Contains(log, "sesame") {
		t.Errorf("a VM without a TPM has the key: %s", log)
	}
}

// remoteAttestation: a pod gets a token that says what its VM is. From a broker in the place of its own it gets none.
func remoteAttestation(t *testing.T, s *suite) {
	s.needTPMs(t)
	b := s.broker(t, kbs.Options{})
	data := b.InitData(t, "")
	log := s.play(t, s.pod("attests", get("/aa/token?token_type=kbs")).on(t, tpmImage, data))
	var answer struct{ Token string }
	if err := json.Unmarshal([]byte(strings.TrimSpace(log)), &answer); err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(answer.Token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	want(t, "token", string(payload), `"ear.status":"affirming"`)
	want(t, "token", string(payload), `"init_data_digest":"`+data.Digest()+`"`)
	want(t, "token", string(payload), `"ak_certified":true`)

	evil := s.newBroker(t) // in the place of one whose certificate the pod has
	evil.Start(t, kbs.Options{Policy: "package policy\ndefault allow := true\n"})
	evil.Certificate = b.Certificate
	log = s.play(t, s.pod("misled", get("/aa/token?token_type=kbs")).on(t, tpmImage, evil.InitData(t, "")))
	if strings.Contains(log, "token") || strings.Contains(evil.Log(t), "attested") {
		t.Errorf("the pod attested to another broker: %s", log)
	}
}

// keyRelease: a pod gets a key; who has not attested does not.
func keyRelease(t *testing.T, s *suite) {
	s.needTPMs(t)
	b := s.broker(t, kbs.Options{})
	want(t, "log", s.play(t, s.pod("keyed", get("/cdh/resource/default/key/1")).on(t, tpmImage, b.InitData(t, ""))), "sesame")
	out, err := exec.Command("curl", "-sk", b.URL+"/kbs/v0/resource/default/key/1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "TokenNotFound") {
		t.Errorf("without attestation: %s, %v", out, err)
	}
}

// keyReleaseForFailure: a VM that is not what the broker expects gets nothing, and the pod's owner reads why.
func keyReleaseForFailure(t *testing.T, s *suite) {
	s.needTPMs(t)
	b := s.broker(t, kbs.Options{References: `{"tpm_pcr11": ["` + strings.Repeat("0", 64) + `"]}`})
	s.create(t, secret("sealed-refused", map[string]string{"key": b.Seal(t, "kbs:///default/key/1")}))
	s.create(t, s.pod("refused", "echo $KEY").on(t, tpmImage, b.InitData(t, "")).container(`{env: [{name: KEY, valueFrom: {secretKeyRef: {name: sealed-refused, key: key}}}]}`))
	message := s.warned(t, "refused", "Failed")
	want(t, "Event", message, "PolicyDeny")
	want(t, "Event", message, "tpm_pcr11")
	s.delete(t, "refused")
}

// specificKey: the policy gives a VM one key and not another.
func specificKey(t *testing.T, s *suite) {
	s.needTPMs(t)
	b := s.broker(t, kbs.Options{Policy: `package policy
default allow := false
allow if {
	data["resource-path"] == ["default", "key", "1"]
	input.submods.cpu0["ear.status"] == "affirming"
}
`})
	log := s.play(t, s.pod("one-key", get("/cdh/resource/default/key/1", "/cdh/resource/default/key/2")).on(t, tpmImage, b.InitData(t, "")))
	want(t, "log", log, "sesame")
	want(t, "log of the broker", b.Log(t), "resource default/key/2")
	if strings.Contains(log, "poppy") {
		t.Errorf("it has the other key, too: %s", log)
	}
}

// sealedSecret: a Secret that nobody else can read is a variable and a file in the pod, and the key of its volume. One that was changed is not opened.
func sealedSecret(t *testing.T, s *suite) {
	s.needTPMs(t)
	class := s.needVolumes(t, encryptedBySecret)
	b := s.broker(t, kbs.Options{Policy: `package policy
default allow := false
allow if input.submods.cpu0["ear.veraison.annotated-evidence"].tpm.ak_certified
`, Resources: map[string]string{"default/volume/1": "poppy"}})
	sealed := b.Seal(t, "kbs:///default/key/1")
	s.create(t, secret("sealed", map[string]string{"key": sealed, "plain": "plain text"}))
	uses := `{env: [{name: KEY, valueFrom: {secretKeyRef: {name: sealed, key: key}}}], volumeMounts: [{name: sealed, mountPath: /sealed}, {name: locked, mountPath: /locked}]}`
	volumes := `volumes: [{name: sealed, secret: {secretName: sealed}}, {name: locked, persistentVolumeClaim: {claimName: sealed-volume}}]`
	const words = "the words of the pod"
	log := s.play(t, s.pod("unseals", `echo "$KEY, $(cat /sealed/key), $(cat /sealed/plain)"; echo "`+words+`" >/locked/file; sync`).on(t, tpmImage, b.InitData(t, "")).container(uses).with(volumes),
		keyOf("sealed-volume", b.Seal(t, "kbs:///default/volume/1")), claim("sealed-volume", class, "1Gi"))
	want(t, "log", log, "sesame, sesame, plain text")
	s.delete(t, "unseals")
	disk, err := os.Open(s.wantEncrypted(t, "sealed-volume", words))
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if _, err := luks.Open(disk, []byte("poppy")); err != nil {
		t.Errorf("the disk, with the broker's key: %v", err)
	}
	s.deleteClaims(t, "sealed-volume")

	parts := strings.Split(sealed, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	parts[2] = base64.RawURLEncoding.EncodeToString(bytes.Replace(payload, []byte("key/1"), []byte("key/2"), 1))
	s.create(t, secret("changed", map[string]string{"key": strings.Join(parts, ".")}))
	s.create(t, s.pod("deceived", "echo $KEY").on(t, tpmImage, b.InitData(t, "")).container(strings.ReplaceAll(`{env: [{name: KEY, valueFrom: {secretKeyRef: {name: sealed, key: key}}}]}`, "sealed", "changed")))
	message := s.warned(t, "deceived", "Failed")
	want(t, "Event", message, "variable KEY: sealed Secret: its signature is not that of the key")
	s.delete(t, "deceived")
}

// imageDecryption: an image whose layers are encrypted runs where the broker gives the key. An image that nobody signed does not.
func imageDecryption(t *testing.T, s *suite) {
	s.needTPMs(t)
	at := s.images.busybox[:strings.LastIndex(s.images.busybox, "/")]
	kek := make([]byte, 32)
	if _, err := rand.Read(kek); err != nil {
		t.Fatal(err)
	}
	signer := kbs.NewKey(t)
	public, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	policy := fmt.Sprintf(`{"default": [{"type": "reject"}], "transports": {"docker": {%q: [{"type": "sigstoreSigned", "keyPath": "kbs:///default/cosign/1", "signedIdentity": {"type": "matchRepository"}}]}}}`, at+"/encrypted")
	b := s.broker(t, kbs.Options{Resources: map[string]string{
		"default/kek/1": string(kek), "default/policy/1": policy,
		"default/cosign/1": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),
	}})
	b.Write(t, "kek", string(kek))
	b.Write(t, "cosign.pem", kbs.PrivatePEM(t, signer))
	// The node's containerd unpacks images, too, and cannot decrypt: it has these layers already, of busybox. The config is another, or it would name
	// busybox to the guest.
	image, err := mutate.Config(cluster.Busybox(t), v1.Config{Env: []string{"PATH=/bin", "OF=encryption"}})
	if err != nil {
		t.Fatal(err)
	}
	s.own.node.Ctr(t, "images", "pull", "--plain-http", s.images.busybox)
	plain, encrypted := push(t, at+"/plain:1", image), at+"/encrypted:1"
	if out, err := run(t, "oci-image", "encrypt", "-key", b.Path("kek"), "-kid", "kbs:///default/kek/1", plain, encrypted); err != nil {
		t.Fatalf("oci-image encrypt: %v: %s", err, out)
	}
	data := b.InitData(t, "[image]\nimage_security_policy_uri = \"kbs:///default/policy/1\"\n")
	sleeps := s.pod("unsigned", "echo decrypted").on(t, tpmImage, data).image(encrypted)
	s.create(t, sleeps)
	want(t, "Event", s.warned(t, "unsigned", "Failed"), "no signature")
	s.delete(t, "unsigned")
	if out, err := run(t, "oci-image", "sign", "-key", b.Path("cosign.pem"), encrypted); err != nil {
		t.Fatalf("oci-image sign: %v: %s", err, out)
	}
	want(t, "log", s.play(t, s.pod("decrypts", "echo decrypted").on(t, tpmImage, data).image(encrypted)), "decrypted")

	if err := os.Remove(b.Path("resources/default/kek/1")); err != nil {
		t.Fatal(err)
	}
	s.create(t, s.pod("keyless", "echo decrypted").on(t, tpmImage, data).image(encrypted))
	want(t, "Event", s.warned(t, "keyless", "Failed"), "there is no resource default/kek/1")
	s.delete(t, "keyless")
}

// initDataMeasurement: a key is for pods with one initdata; a pod with another gets none, whatever it says.
func initDataMeasurement(t *testing.T, s *suite) {
	s.needTPMs(t)
	b := s.newBroker(t)
	data := b.InitData(t, "")
	b.Start(t, kbs.Options{Policy: onlyWith(data)})
	script := get("/cdh/resource/default/key/1")
	want(t, "log", s.play(t, s.pod("measured", script).on(t, tpmImage, data)), "sesame")
	log := s.play(t, s.pod("remeasured", script).on(t, tpmImage, b.InitData(t, "# another")))
	want(t, "log of the broker", b.Log(t), "PolicyDeny")
	if strings.Contains(log, "sesame") {
		t.Errorf("a pod with another initdata has the key: %s", log)
	}
}

// onlyWith gives keys to VMs that are as the reference values have them, with one initdata.
func onlyWith(data *cloudinit.InitData) string {
	return fmt.Sprintf(`package policy
default allow := false
allow if {
	input.submods.cpu0["ear.status"] == "affirming"
	input.submods.cpu0["ear.veraison.annotated-evidence"].init_data_digest == %q
}
`, data.Digest())
}

// nodeCannotSwap: who has the node boots another image, gives the VM another initdata, another broker or other user-data: the pod's Secret stays closed,
// and an Event names what differs.
func nodeCannotSwap(t *testing.T, s *suite) {
	s.needTPMs(t)
	b := s.newBroker(t)
	data := b.InitData(t, "")
	b.Start(t, kbs.Options{Policy: onlyWith(data)})
	evil := s.newBroker(t)
	evil.Start(t, kbs.Options{})
	evil.Certificate = b.Certificate
	s.create(t, secret("sealed-swapped", map[string]string{"key": b.Seal(t, "kbs:///default/key/1")}))
	for _, c := range []struct {
		name, image string
		data        *cloudinit.InitData
		want        string
	}{
		{"other-image", otherTPMImage, data, "none of its"},
		{"other-initdata", tpmImage, b.InitData(t, "# another"), "PolicyDeny"},
		{"other-broker", tpmImage, evil.InitData(t, ""), "another certificate than the one that is expected"},
	} {
		s.create(t, s.pod(c.name, "echo $KEY").on(t, c.image, c.data).container(`{env: [{name: KEY, valueFrom: {secretKeyRef: {name: sealed-swapped, key: key}}}]}`))
		want(t, c.name+": Event", s.warned(t, c.name, "Failed"), c.want)
		s.delete(t, c.name)
	}
	const swapped = "other-user-data"
	s.create(t, s.pod(swapped, "echo $KEY").on(t, tpmImage, data))
	s.swapUserData(t, swapped, "/run/peerpod/initdata", "/run/peerpod/cdh.toml")
	want(t, swapped+": Event", s.warned(t, swapped, "FailedCreatePodSandBox", "Failed"), "cdh.toml is in the VM's user-data, and not the same in the pod's initdata")
	s.delete(t, swapped)
}

// swapUserData replaces a text in what the VM of a pod will read, by one of the same length. The firmware takes seconds before it does.
func (s *suite) swapUserData(t *testing.T, pod, from, to string) {
	t.Helper()
	instances := deployed.HostFolder(s.own.node, "/var/lib/outrigger/qemu/instances")
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		seeds, err := filepath.Glob(filepath.Join(instances, "*"+pod+"*", "seed.iso"))
		if err != nil || len(seeds) == 0 {
			continue
		}
		data, err := os.ReadFile(seeds[0])
		at := bytes.Index(data, []byte(from))
		if err != nil || at < 0 {
			continue // it is being written
		}
		seed, err := os.OpenFile(seeds[0], os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = seed.WriteAt([]byte(to), int64(at))
		if err := errors.Join(err, seed.Close()); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("the VM of pod %s has no user-data with %s", pod, from)
}

// serverIdentity: the VM's key comes from the broker, and user-data has none. A VM that the broker refuses is not reached, and an Event says why.
func serverIdentity(t *testing.T, s *suite) {
	s.needTPMs(t)
	ca := newAuthority(t)
	vm, node := ca.issue(t, "podvm-server", x509.ExtKeyUsageServerAuth), ca.issue(t, "node", x509.ExtKeyUsageClientAuth)
	b := s.newBroker(t)
	data := b.InitData(t, "")
	b.Start(t, kbs.Options{Policy: onlyWith(data), Resources: map[string]string{"default/vm/1": vm["tls.crt"] + vm["tls.key"]}})
	files := []string{"create", "secret", "generic", "certs-for-tls"}
	for name, text := range node {
		b.Write(t, "node/"+name, text)
		files = append(files, "--from-file="+b.Path("node/"+name))
	}
	s.system(t, files...)
	roll := func(env ...string) {
		s.system(t, append([]string{"set", "env", daemonSet}, env...)...)
		s.system(t, "rollout", "status", daemonSet, s.timeout())
	}
	t.Cleanup(func() {
		s.system(t, "delete", "secret", "certs-for-tls")
		roll("CACERT_FILE-", "CERT_FILE-", "CERT_KEY-", "SERVER_IDENTITY-", "PROXY_TIMEOUT-")
	})
	roll("CACERT_FILE=/etc/certificates/ca.crt", "CERT_FILE=/etc/certificates/tls.crt", "CERT_KEY=/etc/certificates/tls.key",
		"SERVER_IDENTITY=kbs:///default/vm/1", "PROXY_TIMEOUT=1m")

	s.start(t, s.pod("identified", "sleep 100000").on(t, tpmImage, data))
	want(t, "log of the broker", b.Log(t), "default/vm/1")
	seeds, err := filepath.Glob(filepath.Join(deployed.HostFolder(s.own.node, "/var/lib/outrigger/qemu/instances"), "*", "seed.iso"))
	if err != nil || len(seeds) != 1 {
		t.Fatal(seeds, err)
	}
	userData, err := os.ReadFile(seeds[0])
	if err != nil || !bytes.Contains(userData, []byte("tls-server-identity")) || bytes.Contains(userData, []byte("PRIVATE KEY")) {
		t.Errorf("the VM's user-data has a key, or no identity (%v): %s", err, userData)
	}
	s.delete(t, "identified")
	s.create(t, s.pod("nameless", "true").annotate(annotationImage, tpmImage))
	want(t, "Event", s.warned(t, "nameless", "FailedCreatePodSandBox", "Failed"), "the pod's initdata names none")
	s.delete(t, "nameless")
	s.create(t, s.pod("unidentified", "true").on(t, tpmImage, b.InitData(t, "# another")))
	// Each line of a message is one here, and the console is in some.
	s.until(t, "events --field-selector=type=Warning,involvedObject.name=unidentified", "{.message}", func(line string) bool { return strings.Contains(line, "PolicyDeny") })
	s.delete(t, "unidentified")
}
