// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// indexer collects what [Index] adds.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, of client.IndexerFunc) error {
	i.WithIndex(o, field, of)
	return nil
}

// apiServer has two Nodes, and volume disk-1 bound to claim ns/data.
func apiServer(t *testing.T, more ...client.Object) *Kubernetes {
	t.Helper()
	driver := storagev1.CSINodeDriver{Name: Name, NodeID: "i-1"}
	objects := append([]client.Object{
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{driver}}},
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "other", NodeID: "i-1"}}}},
		volume("pv-1", Name, "disk-1", "data"), volume("pv-2", "other", "disk-1", "others"),
		&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "in-a-vm"}, Handler: "kata-remote"},
		&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"},
	}, more...)
	b := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...)
	if err := Index(t.Context(), indexer{b}, Name); err != nil {
		t.Fatal(err)
	}
	b.WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} })
	c := b.Build()
	return &Kubernetes{Driver: Name, Cache: c, API: c, Handlers: []string{"kata-remote", "kata-cc"}}
}

func volume(name, driver, handle, claim string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}
	if claim != "" {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: claim}
	}
	return pv
}

func pod(name, node, class string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("u-" + name)}}
	p.Spec.NodeName = node
	if class != "" {
		p.Spec.RuntimeClassName = &class
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	for _, c := range change {
		c(p)
	}
	return p
}

func claims(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = name }
}

func ended(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

// TestPlacement: whose a volume is, the API server says.
func TestPlacement(t *testing.T) {
	for name, test := range map[string]struct {
		objects []client.Object
		want    Placement
		code    codes.Code
		text    string
	}{
		"in a VM":             {[]client.Object{pod("web", "n1", "in-a-vm")}, InVM, 0, ""},
		"ordinary":            {[]client.Object{pod("web", "n1", "")}, OnNode, 0, ""},
		"of another runtime":  {[]client.Object{pod("web", "n1", "gvisor")}, OnNode, 0, ""},
		"two in VMs":          {[]client.Object{pod("web", "n1", "in-a-vm"), pod("old", "n1", "in-a-vm")}, InVM, 0, ""},
		"of both kinds":       {[]client.Object{pod("web", "n1", "in-a-vm"), pod("old", "n1", "")}, "", codes.FailedPrecondition, "claim ns/data is used by pod web, which runs in a VM, and by pod old, which does not"},
		"the other has ended": {[]client.Object{pod("web", "n1", "in-a-vm"), pod("old", "n1", "", ended)}, InVM, 0, ""},
		"the other elsewhere": {[]client.Object{pod("web", "n1", "in-a-vm"), pod("old", "n2", "")}, InVM, 0, ""},
		"the other not of it": {[]client.Object{pod("web", "n1", "in-a-vm"), pod("old", "n1", "", claims("others"))}, InVM, 0, ""},
		"nobody":              {[]client.Object{pod("web", "n2", "in-a-vm"), pod("old", "n1", "", ended)}, "", codes.FailedPrecondition, "no pod of claim ns/data is on node n1"},
		"class is gone":       {[]client.Object{pod("web", "n1", "away")}, "", codes.Unavailable, "RuntimeClass away of pod ns/web"},
		"two volumes":         {[]client.Object{pod("web", "n1", ""), volume("pv-3", Name, "disk-1", "more")}, "", codes.FailedPrecondition, "several PersistentVolumes"},
		"a volume not bound":  {[]client.Object{pod("web", "n1", ""), volume("pv-3", Name, "disk-1", "")}, OnNode, 0, ""},
		"two Nodes of one id": {[]client.Object{&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n3"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: Name, NodeID: "i-1"}}}}}, "", codes.FailedPrecondition, "both have the id"},
		"an ephemeral volume": {[]client.Object{pod("web", "n1", "in-a-vm", func(p *corev1.Pod) {
			p.Name = "da" // whose claim for volume "ta" is da-ta
			p.Spec.Volumes = []corev1.Volume{{Name: "ta", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}), volume("pv-4", Name, "disk-4", "da-ta")}, InVM, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			id := "disk-1"
			if name == "an ephemeral volume" {
				id = "disk-4"
			}
			got, err := apiServer(t, test.objects...).Placement(t.Context(), id, "i-1")
			if got != test.want {
				t.Errorf("%q", got)
			}
			wantCode(t, wire(err), test.code, test.text)
		})
	}
}

func TestPlacementOfWhatIsUnknown(t *testing.T) {
	k := apiServer(t)
	_, err := k.Placement(t.Context(), "disk-9", "i-1")
	wantCode(t, wire(err), codes.Unavailable, "no PersistentVolume") // perhaps it is not in the cache yet
	_, err = k.Placement(t.Context(), "disk-1", "i-9")
	wantCode(t, wire(err), codes.NotFound, "no Node has the id i-9")
}

// TestPlacementWithoutTheAPIServer: what is not known is not guessed.
func TestPlacementWithoutTheAPIServer(t *testing.T) {
	k := apiServer(t, pod("web", "n1", "in-a-vm"))
	k.API = interceptor.NewClient(k.API.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("away")
		},
	})
	got, err := k.Placement(t.Context(), "disk-1", "i-1")
	wantCode(t, wire(err), codes.Unavailable, "away")
	if got != "" {
		t.Errorf("%q", got)
	}
}

func TestPod(t *testing.T) {
	group, policy := int64(7), corev1.FSGroupChangeOnRootMismatch
	k := apiServer(t, pod("web", "n1", "in-a-vm", func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group, FSGroupChangePolicy: &policy}
	}), pod("old", "n1", ""), pod("static", "n1", "", func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	}))
	got, err := k.Pod(t.Context(), "ns", "web", "u-web")
	if diff := cmp.Diff(&Pod{Placement: InVM, FSGroup: &group, FSGroupChangePolicy: "OnRootMismatch"}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for name, uid := range map[string]string{"old": "u-old", "static": "hash"} {
		if got, err := k.Pod(t.Context(), "ns", name, uid); err != nil || got.Placement != OnNode || got.FSGroup != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	_, err = k.Pod(t.Context(), "ns", "web", "u-former")
	wantCode(t, wire(err), codes.FailedPrecondition, "is gone")
	_, err = k.Pod(t.Context(), "ns", "other", "u")
	wantCode(t, wire(err), codes.Unavailable, "read pod ns/other")
	_, err = k.Pod(t.Context(), "", "", "")
	wantCode(t, wire(err), codes.InvalidArgument, "podInfoOnMount")
}

func TestInVMs(t *testing.T) {
	attachment := func(name, attacher, pv, placement string) *storagev1.VolumeAttachment {
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
		a.Spec = storagev1.VolumeAttachmentSpec{Attacher: attacher, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}
		a.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{keyPlacement: placement}}
		return a
	}
	k := apiServer(t, volume("pv-3", Name, "disk-3", "c"), attachment("a", Name, "pv-1", "vm"), attachment("b", Name, "pv-3", "node"),
		attachment("c", "other", "pv-2", "vm"), attachment("d", Name, "pv-gone", "vm"))
	got, err := k.InVMs(t.Context())
	if diff := cmp.Diff(map[string][]string{"disk-1": {"i-1"}}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for disk, want := range map[string]Placement{"disk-1": InVM, "disk-2": "", "disk-3": OnNode} {
		if there, err := k.Attached(t.Context(), disk, "i-1"); err != nil || there != want {
			t.Errorf("%s is attached: %v, %v", disk, there, err)
		}
	}
}

// TestPlacementForAWrappedDriver: "no PersistentVolume" is a decision there, which no old cache makes.
func TestPlacementForAWrappedDriver(t *testing.T) {
	k := apiServer(t, volume("pv-3", "other", "vol-1", "data"), volume("pv-4", "other", "vol-2", ""), pod("web", "n2", "in-a-vm"))
	k.Driver = "other" // of whose volumes the cache has none
	k.Cache = interceptor.NewClient(k.Cache.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if nodes, ok := list.(*storagev1.CSINodeList); ok {
				nodes.Items = []storagev1.CSINode{{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}}
				return nil
			}
			return c.List(ctx, list, o...)
		},
	})
	if got, err := k.Placement(t.Context(), "vol-1", "i-1"); err != nil || got != InVM {
		t.Errorf("%q, %v", got, err)
	}
	_, err := k.Placement(t.Context(), "vol-2", "i-1")
	if wantCode(t, wire(err), codes.Unavailable, "pv-4 of volume vol-2 has no claim"); errors.Is(err, errNoVolume) {
		t.Error("it is a volume of the driver")
	}
	if _, err := k.Placement(t.Context(), "vol-3", "i-1"); !errors.Is(err, errNoVolume) {
		t.Error(err)
	}
}

// TestIsNode: an instance is known by what the driver or the cloud's controller manager says of a Node.
func TestIsNode(t *testing.T) {
	node := func(name, providerID string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	}
	k := apiServer(t, node("aws", "aws:///eu-central-1a/i-2"), node("gcp", "gce://p/z1/a-vm"), node("bare", ""),
		node("azure", "azure:///subscriptions/s/resourceGroups/MC_g/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/3"))
	for id, want := range map[string]bool{
		"i-1": true, "i-2": true, "-2": false, "i-3": false, "z1/a-vm": true, "z1/vm": false,
		"/subscriptions/S/resourceGroups/mc_g/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/3":  true,
		"/subscriptions/s/resourceGroups/MC_g/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/33": false,
	} {
		if got, err := k.IsNode(t.Context(), id); err != nil || got != want {
			t.Errorf("%s: %v, %v", id, got, err)
		}
	}
	k.Cache = interceptor.NewClient(k.Cache.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("away")
		},
	})
	_, err := k.IsNode(t.Context(), "i-1")
	wantCode(t, wire(err), codes.Unavailable, "away")
}
