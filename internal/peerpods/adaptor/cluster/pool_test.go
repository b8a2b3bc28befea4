// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/kubeapi"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/handover"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

// poolNamespace is the controller's; see adaptorNamespace.
const poolNamespace = "confidential-containers-system"

// poolStand is a stand with a pool as the controller keeps it.
type poolStand struct {
	*stand
	pool   *v1alpha1.PodVMPool
	bundle *podtls.Bundle

	mu  sync.Mutex
	vms map[string]*waitingVM // by address of the instance

	zone string // of the next VM
}

// waitingVM is a VM of a pool. It speaks as the real one does, on another address.
type waitingVM struct {
	pp      *v1alpha1.PeerPod
	address string
	got     chan []byte
	boots   atomic.Int32 // how often it is still asked before it answers
}

func newPoolStand(t testing.TB, w who, name string, change func(*adaptor.Options)) *poolStand {
	s := &poolStand{vms: map[string]*waitingVM{}}
	s.stand = newStand(t, w, func(st *stand) {
		st.opts.Namespace = poolNamespace
		st.change = func(o *adaptor.Options) {
			o.HandOver = s.handOver
			if change != nil {
				change(o)
			}
		}
	})
	var err error
	if s.bundle, err = podtls.NewBundle("nodes", time.Now()); err != nil {
		t.Fatal(err)
	}
	// The scenarios share one API server, and pools are of the whole cluster.
	s.pool = &v1alpha1.PodVMPool{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodVMPool"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PodVMPoolSpec{MinReady: 1, Arch: runtime.GOARCH, PodSelector: map[string]string{"pool": name}},
	}
	raw(t, w.admin, "POST", "/apis/"+v1alpha1.GroupVersion.String()+"/podvmpools", s.pool, s.pool)
	s.pool.Status.Template = "t1"
	raw(t, w.admin, "PATCH", "/apis/"+v1alpha1.GroupVersion.String()+"/podvmpools/"+name+"/status", map[string]any{"status": s.pool.Status}, s.pool)
	t.Cleanup(func() {
		raw(t, w.admin, "DELETE", "/apis/"+v1alpha1.GroupVersion.String()+"/podvmpools/"+name, nil, nil)
		raw(t, w.admin, "DELETE", "/api/v1/namespaces/"+poolNamespace+"/secrets/"+claims.PoolSecret, nil, nil)
	})
	raw(t, w.admin, "POST", "/api/v1/namespaces/"+poolNamespace+"/secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]any{"name": claims.PoolSecret, "namespace": poolNamespace},
		"data": map[string][]byte{corev1.TLSCertKey: s.bundle.ClientCertPEM, corev1.TLSPrivateKeyKey: s.bundle.ClientKeyPEM},
	}, nil)
	return s
}

// raw sends one request as somebody who may do all.
func raw(t testing.TB, config *rest.Config, method, path string, object, into any) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, strings.TrimSuffix(config.Host, "/")+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", map[string]string{"PATCH": "application/merge-patch+json"}[method])
	if method == "POST" || method == "DELETE" {
		request.Header.Set("Content-Type", "application/json")
	}
	if object == nil {
		request.Body, request.ContentLength = http.NoBody, 0
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %d, %v: %s", method, path, response.StatusCode, err, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatal(err)
		}
	}
}

// fill makes a VM that waits. take judges the document; nil takes it.
func (s *poolStand) fill(take func([]byte) error) *waitingVM {
	s.t.Helper()
	return s.fillAs("", take)
}

// fillAs makes a VM that waits and has a certificate of another name, unless that is empty.
func (s *poolStand) fillAs(server string, take func([]byte) error) *waitingVM {
	s.t.Helper()
	pp := claims.NewPoolVM(s.pool, claims.Claim{Provider: "fake", Cluster: "here", Namespace: poolNamespace}, s.pool.Status.Template, "")
	if server == "" {
		server = pp.Name
	}
	bundle, err := podtls.NewBundle(server, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	pp.Spec.Pool.Authority = string(bundle.CAPEM)
	tags := map[string]string{provider.TagCluster: "here", provider.TagKey: pp.Spec.SandboxID, provider.TagNamespace: poolNamespace}
	instance, err := s.cloud.CreateInstance(s.t.Context(), s.pool.Name, pp.Spec.SandboxID, cloudinit.CloudConfig{}, provider.InstanceTypeSpec{Tags: tags})
	if err != nil {
		s.t.Fatal(err)
	}
	if pp, err = s.pods.Create(s.t.Context(), pp); err != nil {
		s.t.Fatal(err)
	}
	about := v1alpha1.Instance{ID: instance.ID, Addresses: []string{instance.IPs[0].String()}, Zone: s.zone}
	if pp, err = (&claims.Claims{API: s.pods}).Update(s.t.Context(), pp, claims.Created(about), claims.Ready); err != nil {
		s.t.Fatal(err)
	}
	vm := &waitingVM{pp: pp, got: make(chan []byte, 1)}
	s.listen(vm, bundle, take)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vms[instance.IPs[0].String()] = vm
	return vm
}

func (s *poolStand) listen(vm *waitingVM, bundle *podtls.Bundle, take func([]byte) error) {
	s.t.Helper()
	config, err := podtls.ServerConfig(podtls.ServerOptions{CertPEM: bundle.ServerCertPEM, KeyPEM: bundle.ServerKeyPEM, ClientCAPEM: s.bundle.ClientCertPEM})
	if err != nil {
		s.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	vm.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		handover.Receive(ctx, listener, config, "", func(document []byte) error {
			if take != nil {
				if err := take(document); err != nil {
					return err
				}
			}
			vm.got <- document
			return nil
		})
	}()
}

// handOver is handover.Send to where the test's VM listens.
func (s *poolStand) handOver(ctx context.Context, address string, config *tls.Config, document []byte) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "15150" {
		return fmt.Errorf("address %s: %v", address, err)
	}
	s.mu.Lock()
	vm := s.vms[host]
	s.mu.Unlock()
	if vm == nil {
		return errors.New("no VM of the pool has address " + host)
	}
	i, err := s.cloud.GetInstance(ctx, vm.pp.Spec.InstanceID)
	if err != nil || i.State != provider.StateRunning || vm.boots.Add(-1) >= 0 {
		return fmt.Errorf("%w: it does not run", handover.ErrUnreachable)
	}
	return handover.Send(ctx, vm.address, config, document)
}

// podOf makes a Pod that the pool takes.
func (s *poolStand) podOf(name string) {
	s.pod(name, func(object map[string]any) {
		object["metadata"].(map[string]any)["labels"] = map[string]any{"pool": s.pool.Name}
	})
}

func (s *poolStand) vm(vm *waitingVM) *v1alpha1.PeerPod {
	s.t.Helper()
	pp, err := s.pods.Get(context.Background(), poolNamespace, vm.pp.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return pp
}

// scenarioPool: a pod takes the VM, with the user-data that one of its own would have got;
// when it goes, the VM goes.
func scenarioPool(t *testing.T, w who) {
	s := newPoolStand(t, w, "taken", nil)
	vm := s.fill(nil)
	made := s.cloud.Calls(fake.OpCreate)
	s.podOf("pooled")
	s.run("pooled1", "pooled")
	if n := s.cloud.Calls(fake.OpCreate); n != made {
		t.Fatalf("%d VMs were made beside the one of the pool", n-made)
	}
	config, err := cloudinit.Parse(<-vm.got)
	if err != nil {
		t.Fatal(err)
	}
	if text := config.WriteFiles[0].Content; !strings.Contains(text, `"pod-name": "pooled"`) || !strings.Contains(text, `"tls-server-key"`) || strings.Contains(text, "await-pod") {
		t.Errorf("user-data %s", text)
	}
	s.eventually("both PeerPods name each other", func() bool {
		own, of := s.peerPod("pooled1", "pooled"), s.vm(vm)
		return own != nil && own.Spec.PoolVM == poolNamespace+"/"+vm.pp.Name && own.Spec.InstanceID == vm.pp.Spec.InstanceID &&
			own.Status.Phase == v1alpha1.PhaseReady && of.Spec.NodeName == nodeName && of.Spec.Pool.Claim.Name == own.Name
	})
	s.close() // the next process knows it, too
	s.open()
	s.remove("pooled1")
	s.eventually("the VM is being deleted", func() bool { of := s.vm(vm); return of == nil || of.DeletionTimestamp != nil })
	s.eventually("the instance is gone", func() bool { _, err := s.cloud.GetInstance(t.Context(), vm.pp.Spec.InstanceID); return err != nil })
	s.eventually("its PeerPod is gone", func() bool { return s.peerPod("pooled1", "pooled") == nil })
}

// scenarioPoolFails: a VM that does not take its pod is deleted, and the pod runs in another.
func scenarioPoolFails(t *testing.T, w who) {
	for name, fill := range map[string]func(*poolStand) *waitingVM{
		"refuses":        func(s *poolStand) *waitingVM { return s.fill(func([]byte) error { return errors.New("no room") }) },
		"wrong-identity": func(s *poolStand) *waitingVM { return s.fillAs("somebody-else", nil) },
		"gone":           func(s *poolStand) *waitingVM { vm := s.fill(nil); s.vms = nil; return vm },
	} {
		t.Run(name, func(t *testing.T) {
			s := newPoolStand(t, w, "fails-"+name, nil)
			vm := fill(s)
			s.podOf(name)
			s.run(name+"1", name)
			own := s.peerPod(name+"1", name)
			s.eventually("the pod has a VM of its own", func() bool {
				own = s.peerPod(name+"1", name)
				return own.Spec.PoolVM == "" && own.Spec.InstanceID != "" && own.Spec.InstanceID != vm.pp.Spec.InstanceID
			})
			s.eventually("the VM is being deleted", func() bool { of := s.vm(vm); return of == nil || of.DeletionTimestamp != nil })
			s.remove(name + "1")
			s.wantNoInstances()
		})
	}
}

// scenarioPoolStopped: a VM that waits stopped is started for its pod; one that cannot be
// started is deleted.
func scenarioPoolStopped(t *testing.T, w who) {
	s := newPoolStand(t, w, "stopped", nil)
	s.pool.Spec.Standby = v1alpha1.StandbyStopped
	vm := s.fill(nil)
	vm.boots.Store(3)
	id := vm.pp.Spec.InstanceID
	off := func(id string) {
		if err := s.cloud.PowerOff(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	off(id)
	s.podOf("awake")
	s.run("awake1", "awake")
	if i, err := s.cloud.GetInstance(t.Context(), id); err != nil || i.State != provider.StateRunning || len(vm.got) != 1 {
		t.Errorf("instance %+v, %v; it has %d documents", i, err, len(vm.got))
	}
	s.eventually("the pod has it", func() bool { return s.peerPod("awake1", "awake").Spec.InstanceID == id })
	s.remove("awake1")

	s.close()
	s.open() // with the newest list
	vm = s.fill(nil)
	off(vm.pp.Spec.InstanceID)
	s.cloud.Inject(fake.Fail(fake.OpPowerOn, fmt.Errorf("%w: the host is full", provider.ErrCapacity)))
	s.podOf("asleep")
	s.run("asleep1", "asleep")
	if e := s.event("asleep", reasonVMGivenUp); !strings.Contains(e.Message, "the host is full") {
		t.Errorf("event %+v", e)
	}
	s.eventually("the pod has a VM of its own", func() bool { return s.peerPod("asleep1", "asleep").Spec.PoolVM == "" })
	s.remove("asleep1")
	s.wantNoInstances()
}

// scenarioPoolEmpty: pods that find no VM say so, and those that may take none do not look.
func scenarioPoolEmpty(t *testing.T, w who) {
	s := newPoolStand(t, w, "empty", nil)
	s.podOf("late")
	s.run("late1", "late")
	if e := s.event("late", reasonPoolEmpty); !strings.Contains(e.Message, "pool empty") || e.Type != normal {
		t.Errorf("event %+v", e)
	}
	old := s.fill(nil)
	s.pool.Status.Template = "t2" // of former settings: not for pods any more
	raw(t, w.admin, "PATCH", "/apis/"+v1alpha1.GroupVersion.String()+"/podvmpools/empty/status", map[string]any{"status": s.pool.Status}, nil)
	s.fill(nil)
	s.close()
	s.open() // with the newest list
	data, err := cloudinit.NewInitData("sha256", "0.1.0", map[string]string{"policy.rego": "package policy\n"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := data.Encode()
	if err != nil {
		t.Fatal(err)
	}
	s.podOf("pool-measured")
	if err := errors.Join(s.create("pool-measured1", "pool-measured", cloudinit.InitDataAnnotation, text), s.start("pool-measured1")); err != nil {
		t.Fatal(err)
	}
	s.pod("unlabelled")
	s.run("unlabelled1", "unlabelled")
	s.podOf("fits")
	s.run("fits1", "fits")
	for id, pod := range map[string]string{"late1": "late", "pool-measured1": "pool-measured", "unlabelled1": "unlabelled", "fits1": "fits"} {
		if own := s.peerPod(id, pod); (own.Spec.PoolVM != "") != (pod == "fits") {
			t.Errorf("pod %s has VM %q of a pool", pod, own.Spec.PoolVM)
		}
		s.remove(id)
	}
	if s.vm(old).Spec.Pool.Claim != nil {
		t.Error("a VM of former settings was taken")
	}
	s.selectsNodes(w)
}

// selectsNodes: VMs are for pods of nodes with a label, and the one in the node's zone is taken first.
func (s *poolStand) selectsNodes(w who) {
	admin, err := kubeapi.New(w.admin)
	if err != nil {
		s.t.Fatal(err)
	}
	node := map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": nodeName}}
	if err := admin.Create(s.t.Context(), kubeapi.Path(kubeapi.Core, "", "nodes"), node, nil); err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
	label := func(zone any) {
		raw(s.t, w.admin, "PATCH", "/api/v1/nodes/"+nodeName, map[string]any{"metadata": map[string]any{"labels": map[string]any{corev1.LabelTopologyZone: zone}}}, nil)
	}
	label("a")
	defer label(nil)
	want := ""
	for _, s.zone = range []string{"b", "c", "a", "d"} {
		if vm := s.fill(nil); s.zone == "a" {
			want = poolNamespace + "/" + vm.pp.Name
		}
	}
	for pod, zone := range map[string]string{"elsewhere": "b", "here": "a"} {
		raw(s.t, w.admin, "PATCH", "/apis/"+v1alpha1.GroupVersion.String()+"/podvmpools/empty", map[string]any{"spec": map[string]any{"nodeSelector": map[string]string{corev1.LabelTopologyZone: zone}}}, nil)
		s.close()
		s.open() // with the newest list
		s.podOf(pod)
		s.run(pod+"1", pod)
		if own := s.peerPod(pod+"1", pod); own.Spec.PoolVM != map[string]string{"a": want}[zone] {
			s.t.Errorf("pod %s has VM %q of a pool for zone %s, want %q in zone a", pod, own.Spec.PoolVM, zone, want)
		}
		s.remove(pod + "1")
	}
}

// scenarioPoolRace: of many pods at once each VM serves one, and no pod fails.
func scenarioPoolRace(t *testing.T, w who) {
	const vms, pods = 8, 12
	s := newPoolStand(t, w, "race", nil)
	var list []*waitingVM
	for range vms {
		list = append(list, s.fill(nil))
	}
	var all sync.WaitGroup
	for i := range pods {
		name := fmt.Sprintf("race%d", i)
		s.podOf(name)
		all.Go(func() {
			if err := errors.Join(s.create(name+"1", name), s.start(name+"1")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	users := map[string]string{}
	for i := range pods {
		name := fmt.Sprintf("race%d", i)
		s.eventually("the instance of "+name+" is noted", func() bool { own := s.peerPod(name+"1", name); return own != nil && own.Spec.InstanceID != "" })
		own := s.peerPod(name+"1", name)
		if other := users[own.Spec.InstanceID]; other != "" {
			t.Errorf("%s and %s have one VM", other, name)
		}
		users[own.Spec.InstanceID] = name
	}
	for _, vm := range list {
		if users[vm.pp.Spec.InstanceID] == "" {
			t.Errorf("nobody has VM %s", vm.pp.Name)
		}
	}
}

func TestFits(t *testing.T) {
	for name, tc := range map[string]struct {
		pool v1alpha1.PodVMPoolSpec
		want provider.InstanceTypeSpec
		fits bool
	}{
		"default":              {v1alpha1.PodVMPoolSpec{}, provider.InstanceTypeSpec{}, true},
		"default wants size":   {v1alpha1.PodVMPoolSpec{}, provider.InstanceTypeSpec{VCPUs: 1}, false},
		"size":                 {v1alpha1.PodVMPoolSpec{VCPUs: 2, MemoryMiB: 4096}, provider.InstanceTypeSpec{VCPUs: 2, Memory: 3000}, true},
		"too small":            {v1alpha1.PodVMPoolSpec{VCPUs: 2, MemoryMiB: 2048}, provider.InstanceTypeSpec{VCPUs: 2, Memory: 3000}, false},
		"waste":                {v1alpha1.PodVMPoolSpec{VCPUs: 2, MemoryMiB: 8192}, provider.InstanceTypeSpec{VCPUs: 2, Memory: 3000}, false},
		"only memory":          {v1alpha1.PodVMPoolSpec{VCPUs: 2, MemoryMiB: 4096}, provider.InstanceTypeSpec{Memory: 4096}, true},
		"type":                 {v1alpha1.PodVMPoolSpec{InstanceType: "t3.small"}, provider.InstanceTypeSpec{InstanceType: "t3.small"}, true},
		"other type":           {v1alpha1.PodVMPoolSpec{InstanceType: "t3.small"}, provider.InstanceTypeSpec{InstanceType: "t3.large"}, false},
		"default, not of type": {v1alpha1.PodVMPoolSpec{InstanceType: "t3.small"}, provider.InstanceTypeSpec{}, false},
		"image":                {v1alpha1.PodVMPoolSpec{Image: "a"}, provider.InstanceTypeSpec{Image: "a"}, true},
		"other image":          {v1alpha1.PodVMPoolSpec{}, provider.InstanceTypeSpec{Image: "a"}, false},
		"architecture":         {v1alpha1.PodVMPoolSpec{Arch: "arm64"}, provider.InstanceTypeSpec{}, false},
		"gpu":                  {v1alpha1.PodVMPoolSpec{GPUs: 1, VCPUs: 2}, provider.InstanceTypeSpec{GPUs: 1, VCPUs: 2}, true},
		"gpu of a model":       {v1alpha1.PodVMPoolSpec{GPUs: 1}, provider.InstanceTypeSpec{GPUs: 1, GPU: "l4"}, false},
		"network":              {v1alpha1.PodVMPoolSpec{}, provider.InstanceTypeSpec{MultiNic: true}, false},
		"volumes":              {v1alpha1.PodVMPoolSpec{}, provider.InstanceTypeSpec{Volumes: make([]provider.CloudVolume, 1)}, false},
	} {
		if size := claims.VMSpec(&tc.pool); adaptor.Fits(&size, &tc.want) != tc.fits {
			t.Errorf("%s: want %v", name, tc.fits)
		}
	}
}

// TestCandidateOfAZone: a pod whose volumes are in a zone gets no VM of another.
func TestCandidateOfAZone(t *testing.T) {
	pool := &v1alpha1.PodVMPool{}
	pool.Name, pool.Status.Template = "small", "t1"
	of := candidates{template: "t1", read: time.Unix(1, 0)}
	for _, zone := range []string{"a", "b", ""} {
		pp := &v1alpha1.PeerPod{}
		pp.Name = "vm-" + zone
		if zone != "" {
			pp.Status.Instance = &v1alpha1.Instance{Zone: zone}
		}
		of.list = append(of.list, pp)
	}
	p := &pools{waiting: map[string]candidates{"small": of}}
	c := &Cluster{opts: Options{Now: func() time.Time { return time.Unix(1, 0) }}}
	for _, test := range []struct{ zone, want string }{{"c", ""}, {"b", "vm-b"}, {"b", ""}, {"", "vm-a"}, {"", "vm-"}} {
		got, err := p.candidate(t.Context(), c, pool, test.zone)
		if err != nil || (got == nil) != (test.want == "") || got != nil && got.Name != test.want {
			t.Errorf("zone %q: %+v, %v; want %q", test.zone, got, err, test.want)
		}
	}
}
