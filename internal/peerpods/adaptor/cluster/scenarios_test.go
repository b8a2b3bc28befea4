// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/kubeapi"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/adaptortest"
)

// mostWrites is what one pod's life may cost the API server.
const mostWrites = 8

// scenarios run on the API server in memory and on the real one.
var scenarios = map[string]func(*testing.T, who){
	"Lifecycle":              scenarioLifecycle,
	"APIServerAway":          scenarioAway,
	"RestartWhileAway":       scenarioRestartWhileAway,
	"ErrorClasses":           scenarioErrorClasses,
	"SameFailureIsOneEvent":  scenarioSameFailure,
	"NodeResource":           scenarioNodeResource,
	"PullSecrets":            scenarioPullSecrets,
	"PullSecretElsewhere":    scenarioPullSecretElsewhere,
	"Initdata":               scenarioInitdata,
	"EditedByHand":           scenarioEditedByHand,
	"EditedBehindAList":      scenarioEditedBehindAList,
	"PodDeletedWhileBooting": scenarioPodDeleted,
	"NoSuchPod":              scenarioNoSuchPod,
	"Pool":                   scenarioPool,
	"PoolFails":              scenarioPoolFails,
	"PoolStopped":            scenarioPoolStopped,
	"PoolEmpty":              scenarioPoolEmpty,
	"PoolRace":               scenarioPoolRace,
	"Volumes":                scenarioVolumes,
}

func TestInMemory(t *testing.T) {
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := newFakeAPI(t).serve()
			scenario(t, who{config, config, nil})
		})
	}
}

func scenarioLifecycle(t *testing.T, w who) {
	s := newStand(t, w, nil)
	uid := s.pod("life")
	asked, gate := fake.Block(fake.OpCreate)
	s.cloud.Inject(asked)
	if err := s.create("life1", "life"); err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- s.start("life1") }()
	<-gate.Reached()
	pp := s.peerPod("life1", "life")
	if !hasFinalizer(pp) {
		t.Fatalf("when the cloud is asked the PeerPod is %v", pp)
	}
	if err := ownedByPod(pp, uid); err != nil {
		t.Error(err)
	}
	if pp.Spec.SandboxID != "life1" || pp.Spec.NodeName != nodeName || pp.Spec.CloudProvider != "fake" || pp.Spec.ClusterID != "here" || pp.Spec.InstanceID != "" {
		t.Errorf("spec %+v", pp.Spec)
	}
	gate.Open()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	s.eventually("phase Ready", func() bool { pp = s.peerPod("life1", "life"); return pp.Status.Phase == v1alpha1.PhaseReady })
	if pp.Spec.InstanceID == "" || pp.Status.Instance == nil || pp.Status.Instance.ID != pp.Spec.InstanceID || len(pp.Status.Instance.Addresses) == 0 {
		t.Errorf("instance %+v, spec %+v", pp.Status.Instance, pp.Spec)
	}
	if i := pp.Status.Instance; i.Type == "" || i.Zone != "fake-zone" {
		t.Errorf("type %q, zone %q", i.Type, i.Zone)
	}
	if len(pp.Status.Steps) != 12 { // 10, and 2 parts of create-instance
		t.Errorf("steps %v", pp.Status.Steps)
	}
	if e := s.event("life", claims.ReasonInstanceCreated); string(e.InvolvedObject.UID) != uid || e.Type != normal || !strings.Contains(e.Message, pp.Spec.InstanceID+", "+pp.Status.Instance.Type+", fake-zone") {
		t.Errorf("event %+v", e)
	}
	s.event("life", claims.ReasonReady)
	s.remove("life1")
	s.eventually("no PeerPod", func() bool { return s.peerPod("life1", "life") == nil })
	s.wantNoInstances()
	if n := s.network.writes.Load(); n > mostWrites {
		t.Errorf("%d API writes for one pod, want at most %d", n, mostWrites)
	} else {
		t.Logf("%d API writes for one pod", n)
	}
}

// scenarioAway: pods start and stop without the API server; it is told later.
func scenarioAway(t *testing.T, w who) {
	s := newStand(t, w, nil)
	uid := s.pod("stays")
	s.pod("goes")
	s.network.cut.Store(true)
	began := time.Now()
	s.run("stays1", "stays")
	s.run("goes1", "goes")
	s.remove("goes1")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("without the API server two pods took %s", took)
	}
	s.wantNoInstancesOf("goes1")
	if !s.cluster.Away() || s.cluster.Backlog() == 0 {
		t.Errorf("away %t, backlog %d", s.cluster.Away(), s.cluster.Backlog())
	}
	s.network.cut.Store(false)
	s.eventually("the PeerPod is written later", func() bool {
		pp := s.peerPod("stays1", "stays")
		return pp != nil && pp.Status.Phase == v1alpha1.PhaseReady && ownedByPod(pp, uid) == nil
	})
	s.event("stays", claims.ReasonReady)
	s.eventually("the other is released", func() bool { return len(s.service.States()) == 1 && s.service.States()[adaptor.StateReady] == 1 })
	if s.peerPod("goes1", "goes") != nil {
		t.Error("a PeerPod of a removed sandbox was made")
	}
	s.eventually("no backlog", func() bool { return s.cluster.Backlog() == 0 && !s.cluster.Away() })
}

func (s *stand) wantNoInstancesOf(id string) {
	s.t.Helper()
	s.eventually("no instance of "+id, func() bool {
		list, err := s.cloud.ListInstances(context.Background(), map[string]string{provider.TagKey: id})
		return err == nil && len(list) == 0
	})
}

// scenarioRestartWhileAway: what could not be written survives the adaptor.
func scenarioRestartWhileAway(t *testing.T, w who) {
	s := newStand(t, w, nil)
	s.pod("kept")
	s.pod("released")
	s.run("released1", "released")
	s.eventually("a PeerPod", func() bool { return s.peerPod("released1", "released") != nil })
	s.network.cut.Store(true)
	s.run("kept1", "kept")
	s.remove("released1")
	s.wantNoInstancesOf("released1")
	s.close()
	if pp := s.peerPod("released1", "released"); !hasFinalizer(pp) {
		t.Fatalf("the PeerPod was released without the API server: %v", pp)
	}
	s.network.cut.Store(false)
	s.open()
	s.eventually("the PeerPod of the kept sandbox", func() bool {
		pp := s.peerPod("kept1", "kept")
		return pp != nil && pp.Status.Phase == v1alpha1.PhaseReady
	})
	s.eventually("the other's is released", func() bool { return s.peerPod("released1", "released") == nil })
}

// errorCase is a failure by the reason and a part of the hint that the pod's
// owner reads.
type errorCase struct {
	reason, hint string
	fault        error // of the cloud
	tunnel       error // of the node
	agent        error // of the relay
}

var errorCases = []errorCase{
	{reason: "InvalidArgument", hint: "correct", fault: provider.ErrInvalidArgument},
	{reason: "NotFound", hint: "check that the image", fault: provider.ErrNotFound},
	{reason: "AlreadyExists", hint: "delete the pod", fault: provider.ErrAlreadyExists},
	{reason: "DiskInUse", hint: "another instance still has", fault: provider.ErrInUse},
	{reason: "NoCapacity", hint: "another instance type or zone", fault: provider.ErrCapacity},
	{reason: "QuotaExceeded", hint: "quota", fault: provider.ErrQuota},
	{reason: "Unauthenticated", hint: "credentials", fault: provider.ErrUnauthenticated},
	{reason: "PermissionDenied", hint: "permission", fault: provider.ErrPermissionDenied},
	{reason: "CloudUnavailable", hint: "tried again", fault: provider.ErrUnavailable},
	{reason: "Unimplemented", hint: "provider", fault: provider.ErrUnimplemented},
	{reason: "ProviderError", hint: "see the message", fault: errors.New("no class")},
	{reason: "NetworkFailed", hint: "network namespace", tunnel: errors.New("no such link")},
	{reason: "AgentUnreachable", hint: "firewall", agent: errors.New("no answer")},
	{reason: "DiskFull", hint: "free space", tunnel: unix.ENOSPC},
}

func scenarioErrorClasses(t *testing.T, w who) {
	for _, class := range provider.Classes() {
		if !slices.ContainsFunc(errorCases, func(c errorCase) bool { return c.fault != nil && provider.Class(c.fault) == class }) {
			t.Errorf("no case has an error of the class %q", class)
		}
	}
	for i, c := range errorCases {
		t.Run(c.reason, func(t *testing.T) {
			s := newStand(t, w, func(s *stand) { s.change = c.apply })
			if c.fault != nil {
				s.cloud.Inject(fake.Fail(fake.OpCreate, c.fault).Repeated(-1))
			}
			name, id := fmt.Sprintf("fails-%d", i), fmt.Sprintf("f%d", i)
			uid := s.pod(name)
			if err := s.create(id, name); err != nil {
				t.Fatal(err)
			}
			failed := s.start(id)
			began := time.Now()
			if failed == nil {
				t.Fatal("StartVM succeeded")
			}
			e := s.event(name, c.reason)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the Event came after %s", took)
			}
			if e.Type != warning || string(e.InvolvedObject.UID) != uid || !strings.Contains(e.Message, c.hint) || !strings.Contains(e.Message, "step ") || len(e.Message) > maxMessage {
				t.Errorf("event %+v", e)
			}
			s.eventually("the PeerPod is released", func() bool { return s.peerPod(id, name) == nil && len(s.service.States()) == 0 })
			for _, e := range s.events(name) {
				if e.Type == warning && e.Reason != c.reason {
					t.Errorf("another warning: %+v", e)
				}
			}
		})
	}
}

func (c *errorCase) apply(o *adaptor.Options) {
	if c.tunnel != nil {
		o.Network.(*adaptortest.Network).SetupErr = func() error { return c.tunnel }
	}
	if c.agent != nil {
		o.Relay.(*adaptortest.Relay).ServeErr = func(context.Context, *relaypb.ServeRequest) error { return c.agent }
	}
}

// scenarioSameFailure: a pod that fails again and again fills no page.
func scenarioSameFailure(t *testing.T, w who) {
	s := newStand(t, w, nil)
	s.pod("again")
	s.cloud.Inject(fake.Quota().Repeated(-1))
	const times = 30
	for i := range times {
		id := fmt.Sprintf("again%d", i)
		if err := s.create(id, "again"); err != nil {
			t.Fatal(err)
		}
		if s.start(id) == nil {
			t.Fatal("StartVM succeeded")
		}
	}
	s.eventually("a count", func() bool { return s.event("again", "QuotaExceeded").Count > 1 })
	s.eventually("all is released", func() bool { return len(s.service.States()) == 0 })
	if all := s.events("again"); len(all) != 1 {
		t.Errorf("%d Events: %+v", len(all), all)
	}
}

func scenarioNodeResource(t *testing.T, w who) {
	advertises := func(owner string, limit int) func(*stand) {
		return func(s *stand) {
			s.opts.NodeName, s.opts.Owner, s.opts.Limit, s.opts.Resync = "advertiser", owner, limit, 20*time.Millisecond
		}
	}
	admin, err := kubeapi.New(w.admin)
	if err != nil {
		t.Fatal(err)
	}
	err = admin.Create(t.Context(), kubeapi.Path(kubeapi.Core, "", "nodes"), map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "advertiser"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	state := func() (capacity, owner string) {
		var n node
		if err := admin.Get(t.Context(), kubeapi.Path(kubeapi.Core, "", "nodes", "advertiser"), &n); err != nil {
			t.Fatal(err)
		}
		return n.Status.Capacity[resourceName], n.Metadata.Annotations[ownerAnnotation]
	}
	is := func(capacity, owner string) func() bool {
		return func() bool { c, o := state(); return c == capacity && o == owner }
	}
	first := newStand(t, w, advertises("first", 10))
	first.eventually("first advertises", is("10", "first"))
	// A kubelet that registers again drops what it does not know.
	err = admin.Patch(t.Context(), kubeapi.Path(kubeapi.Core, "", "nodes", "advertiser", "status"), map[string]any{"status": map[string]any{"capacity": map[string]any{resourceName: nil}}})
	if err != nil {
		t.Fatal(err)
	}
	first.eventually("first advertises again", is("10", "first"))
	first.close()
	first.eventually("first withdraws", is("", ""))

	first = newStand(t, w, func(s *stand) { advertises("first", 10)(s); s.opts.Resync = time.Hour })
	first.eventually("first advertises", is("10", "first"))
	second := newStand(t, w, advertises("second", 12))
	second.eventually("second advertises", is("12", "second"))
	first.close()
	if c, o := state(); c != "12" || o != "second" {
		t.Errorf("the first took away what is the second's: %q, %q", c, o)
	}
	second.close()
	second.eventually("second withdraws", is("", ""))
	silent := newStand(t, w, advertises("third", -1))
	silent.close()
	if c, o := state(); c != "" || o != "" {
		t.Errorf("a negative limit advertises %q, %q", c, o)
	}
}

func scenarioPullSecrets(t *testing.T, w who) {
	s := newStand(t, w, func(s *stand) { s.opts.NodeConfig = w.node })
	auth := base64.StdEncoding.EncodeToString([]byte("me:pass"))
	s.secret("new", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", `{"auths":{"r1.example":{"auth":"`+auth+`"},"r2.example":{"username":"me","password":"pass"}}}`)
	s.secret("old", "kubernetes.io/dockercfg", ".dockercfg", `{"r1.example":{"auth":"second"},"r3.example":{"auth":"`+auth+`"}}`)
	s.secret("odd", "Opaque", "key", "value")
	s.secret("big", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", `{"auths":{"big.example":{"auth":"`+strings.Repeat("x", adaptor.MaxAuthFile)+`"}}}`)
	s.pod("pulls", func(object map[string]any) {
		object["spec"].(map[string]any)["imagePullSecrets"] = []any{
			map[string]any{"name": "big"}, map[string]any{"name": "new"}, map[string]any{"name": "old"}, map[string]any{"name": "odd"}, map[string]any{"name": "gone"},
		}
	})
	s.run("pulls1", "pulls")
	want := `{"auths":{"r1.example":{"auth":"` + auth + `"},"r2.example":{"auth":"` + auth + `"},"r3.example":{"auth":"` + auth + `"}}}`
	if got := s.guestFile("pulls1", "/run/peerpod/auth.json"); got != want {
		t.Errorf("auth.json %s, want %s", got, want)
	}
	for reason, part := range map[string]string{reasonSecretMissing: "gone", reasonSecretInvalid: "odd", reasonSecretTooBig: "big.example"} {
		if e := s.event("pulls", reason); !strings.Contains(e.Message, part) || strings.Contains(e.Message, auth) {
			t.Errorf("event %+v", e)
		}
	}
}

// scenarioPullSecretElsewhere: no name leads to a Secret that the pod's namespace does not have.
func scenarioPullSecretElsewhere(t *testing.T, w who) {
	s := newStand(t, w, func(s *stand) { s.opts.NodeConfig = w.node })
	s.secret("theirs", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", `{"auths":{"r.example":{"auth":"eDp5"}}}`)
	s.pod("climbs", withPullSecrets("../secrets/theirs", "../../"+namespace+"/secrets/theirs", "", "theirs?x=y"))
	s.run("climbs1", "climbs")
	if got := s.guestFile("climbs1", "/run/peerpod/auth.json"); got != "" {
		t.Errorf("auth.json %s", got)
	}
	if e := s.event("climbs", reasonSecretMissing); !strings.Contains(e.Message, "cannot be read") {
		t.Errorf("event %+v", e)
	}
}

func withPullSecrets(names ...string) func(map[string]any) {
	var list []any
	for _, name := range names {
		list = append(list, map[string]any{"name": name})
	}
	return func(object map[string]any) { object["spec"].(map[string]any)["imagePullSecrets"] = list }
}

// guestFile returns a file of the sandbox's user-data.
func (s *stand) guestFile(id, path string) string {
	s.t.Helper()
	text, ok := s.userData.Load(id)
	if !ok {
		s.t.Fatalf("sandbox %s has no user-data", id)
	}
	config, err := cloudinit.Parse([]byte(text.(string)))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, file := range config.WriteFiles {
		if file.Path == path {
			return file.Content
		}
	}
	return ""
}

// scenarioInitdata: a shim that passes the annotation on is not needed.
func scenarioInitdata(t *testing.T, w who) {
	data, err := cloudinit.NewInitData("sha384", "0.1.0", map[string]string{"aa.toml": "x = 1"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := data.Encode()
	if err != nil {
		t.Fatal(err)
	}
	annotate := func(value string) func(map[string]any) {
		return func(object map[string]any) {
			object["metadata"].(map[string]any)["annotations"] = map[string]any{cloudinit.InitDataAnnotation: value}
		}
	}
	s := newStand(t, w, nil)
	s.pod("measured", annotate(text))
	s.run("measured1", "measured")
	if got := s.guestFile("measured1", "/run/peerpod/initdata"); got != text {
		t.Errorf("initdata %q, want %q", got, text)
	}
	want := "sha384:" + data.Digest()
	s.eventually("the digest on the PeerPod", func() bool {
		pp := s.peerPod("measured1", "measured")
		return pp != nil && pp.Annotations[claims.AnnotationInitdata] == want
	})
	s.pod("wrong", annotate("no initdata"))
	if err := s.create("wrong1", "wrong"); err == nil {
		t.Error("a pod whose initdata cannot be read was run without")
	}
	s.event("wrong", "InvalidArgument")
}

// scenarioEditedByHand: what somebody changes or removes is written again.
func scenarioEditedByHand(t *testing.T, w who) {
	s := newStand(t, w, func(s *stand) { s.opts.Resync = 10 * time.Millisecond })
	s.pod("edited")
	s.run("edited1", "edited")
	var pp *v1alpha1.PeerPod
	s.eventually("ready", func() bool {
		pp = s.peerPod("edited1", "edited")
		return pp != nil && pp.Status.Phase == v1alpha1.PhaseReady
	})
	if _, err := s.pods.Patch(t.Context(), namespace, pp.Name, "status", []byte(`{"status":{"phase":"Failed","conditions":null,"instance":null}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pods.Patch(t.Context(), namespace, pp.Name, "", []byte(`{"metadata":{"finalizers":[]},"spec":{"instanceID":"other"}}`)); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is as it was", func() bool {
		now := s.peerPod("edited1", "edited")
		return hasFinalizer(now) && now.Spec.InstanceID == pp.Spec.InstanceID && now.Status.Phase == v1alpha1.PhaseReady && now.Status.Instance != nil
	})
	s.remove("edited1")
	s.eventually("no PeerPod", func() bool { return s.peerPod("edited1", "edited") == nil })
}

// scenarioEditedBehindAList: the finalizer is taken off after the list that shows
// another edit, so what is written then is newer than what was looked at.
func scenarioEditedBehindAList(t *testing.T, w who) {
	s := newStand(t, w, func(s *stand) { s.opts.Resync = 10 * time.Millisecond })
	s.pod("behind")
	s.run("behind1", "behind")
	var pp *v1alpha1.PeerPod
	s.eventually("ready", func() bool {
		pp = s.peerPod("behind1", "behind")
		return pp != nil && pp.Status.Phase == v1alpha1.PhaseReady && s.cluster.Backlog() == 0
	})
	edit := func(subresource, patch string) {
		if _, err := s.pods.Patch(t.Context(), namespace, pp.Name, subresource, []byte(patch)); err != nil {
			t.Error(err)
		}
	}
	edited := make(chan struct{})
	second := func() {
		defer close(edited)
		edit("", `{"metadata":{"finalizers":[]}}`)
	}
	first := func() {
		edit("status", `{"status":{"phase":"Failed"}}`)
		s.network.listed.Store(&second) // the next list shows the first edit
	}
	s.network.listed.Store(&first)
	<-edited
	s.eventually("it is as it was", func() bool {
		now := s.peerPod("behind1", "behind")
		return hasFinalizer(now) && now.Status.Phase == v1alpha1.PhaseReady
	})
	s.remove("behind1")
	s.eventually("no PeerPod", func() bool { return s.peerPod("behind1", "behind") == nil })
}

func scenarioPodDeleted(t *testing.T, w who) {
	s := newStand(t, w, nil)
	s.pod("deleted")
	asked, gate := fake.Block(fake.OpCreate)
	s.cloud.Inject(asked)
	if err := s.create("deleted1", "deleted"); err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- s.start("deleted1") }()
	<-gate.Reached()
	err := s.admin.Create(t.Context(), kubeapi.Path(kubeapi.Core, namespace, "pods", "deleted", "eviction"), map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": "deleted", "namespace": namespace},
		"deleteOptions": map[string]any{"gracePeriodSeconds": 0},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.remove("deleted1")
	if <-started == nil {
		t.Error("StartVM succeeded")
	}
	gate.Open()
	s.eventually("no PeerPod", func() bool { return s.peerPod("deleted1", "deleted") == nil && len(s.service.States()) == 0 })
	s.wantNoInstances()
	for _, e := range s.events("deleted") {
		if e.Type == warning {
			t.Errorf("a deleted pod has an Event about a failure: %+v", e)
		}
	}
}

// scenarioNoSuchPod: a sandbox that somebody made through the runtime.
func scenarioNoSuchPod(t *testing.T, w who) {
	s := newStand(t, w, nil)
	s.run("nobody1", "nobody")
	pp := s.peerPod("nobody1", "nobody")
	s.eventually("a PeerPod without owner", func() bool { pp = s.peerPod("nobody1", "nobody"); return hasFinalizer(pp) })
	if len(pp.OwnerReferences) > 0 || pp.Spec.PodUID != "" {
		t.Errorf("owners %v, UID %q", pp.OwnerReferences, pp.Spec.PodUID)
	}
	s.remove("nobody1")
	s.eventually("no PeerPod", func() bool { return s.peerPod("nobody1", "nobody") == nil })
	if all := s.events("nobody"); len(all) > 0 {
		t.Errorf("Events of nobody: %v", all)
	}
}

// BenchmarkPodLife counts what pods cost the API server from the adaptor, from
// the claim to the release; the controller writes nothing for a pod with which
// nothing is wrong.
func BenchmarkPodLife(b *testing.B) {
	config := newFakeAPI(b).serve()
	s := newStand(b, who{config, config, nil}, nil)
	pods := 0
	for b.Loop() {
		pods++
		name := fmt.Sprint("life-", pods)
		s.pod(name)
		s.run(name, name)
		s.eventually("phase Ready", func() bool { pp := s.peerPod(name, name); return pp.Status.Phase == v1alpha1.PhaseReady })
		s.event(name, claims.ReasonReady)
		s.cluster.Observe(guestSteps(name))
		s.remove(name)
		s.eventually("no PeerPod", func() bool { return s.peerPod(name, name) == nil })
	}
	b.ReportMetric(float64(s.network.writes.Load())/float64(pods), "API-writes/pod")
}

// guestSteps is what is observed when the first container of a sandbox runs.
func guestSteps(id string) adaptor.Change {
	now := time.Now()
	return adaptor.Change{Kind: adaptor.ChangeTimeline, Sandbox: adaptor.Record{ID: id}, Timeline: timeline.Timeline{Steps: []timeline.Step{
		{Name: "kernel", Where: timeline.Guest, Start: now.Add(-time.Second), End: now},
		{Name: "of-its-own", Where: timeline.Guest, Start: now, End: now},
	}}}
}

// TestGuestStepsAreWrittenWhereAsked: the steps of guests are a write more, which nobody has
// who did not ask for it.
func TestGuestStepsAreWrittenWhereAsked(t *testing.T) {
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprint(asked), func(t *testing.T) {
			config := newFakeAPI(t).serve()
			s := newStand(t, who{config, config, nil}, func(s *stand) { s.opts.GuestSteps = asked })
			s.pod("web")
			s.run("web", "web")
			s.eventually("phase Ready", func() bool { return s.peerPod("web", "web").Status.Phase == v1alpha1.PhaseReady })
			s.event("web", claims.ReasonReady)
			s.cluster.Observe(guestSteps("web"))
			if asked {
				var steps []v1alpha1.Step
				s.eventually("a step of the guest", func() bool {
					steps = slices.DeleteFunc(s.peerPod("web", "web").Status.Steps, func(st v1alpha1.Step) bool { return st.Place != v1alpha1.PlaceGuest })
					return len(steps) > 0
				})
				if len(steps) != 1 || steps[0].Name != "kernel" || steps[0].Time.Sub(steps[0].StartTime.Time) != time.Second {
					t.Errorf("steps %+v", steps)
				}
			}
			s.remove("web")
			s.eventually("no PeerPod", func() bool { return s.peerPod("web", "web") == nil })
			if writes := s.network.writes.Load(); !asked && writes > mostWrites || asked && writes > mostWrites+1 {
				t.Errorf("%d writes", writes)
			}
		})
	}
}
