// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	infrav1beta1 "github.com/outrigger/outrigger/api/infrastructure/v1beta1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/conversion"
)

// memory is an API server in memory: what the real one does, as far as the
// checks see it.
type memory struct {
	// Client is how everybody reads and writes, the kit included.
	client.WithWatch
	admit admission
	// older changes what is read in contract v1beta1.
	older func(*unstructured.Unstructured)

	mu     sync.Mutex
	serial int
	infra  map[string][]request // by namespace
	told   []func(request)
}

// admission says whether an update of a template is allowed.
type admission func(before, after *unstructured.Unstructured, dryRun bool) error

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, infrav1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

func newMemory(crds []*unstructured.Unstructured, admit admission, older func(*unstructured.Unstructured)) *memory {
	m := &memory{admit: admit, older: older, infra: map[string][]request{}}
	builder := fakeclient.NewClientBuilder().WithScheme(newScheme()).WithStatusSubresource(
		&clusterv1.Cluster{}, &clusterv1.Machine{}, &infrav1.OutriggerCluster{}, &infrav1.OutriggerMachine{},
		&clusterv1.MachinePool{}, &infrav1.DockerMachinePool{})
	for _, crd := range crds {
		builder = builder.WithObjects(crd.DeepCopy())
	}
	m.WithWatch = interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Get: m.get, Create: m.create, Update: m.update, Patch: m.patch, Delete: m.delete,
		SubResourcePatch: m.patchStatus, SubResourceUpdate: m.updateStatus,
	})
	return m
}

const otherGroup = "other.example.com"

// definitions are the real ones, with the labels that config/crd adds.
var definitions = sync.OnceValue(func() (all []*unstructured.Unstructured) {
	files, err := filepath.Glob("../../../config/crd/bases/*_outrigger*.yaml")
	if err != nil || len(files) != 4 {
		panic(fmt.Sprint("definitions of Outrigger kinds: ", files, err))
	}
	files = append(files, "../../../config/crd/bases/infrastructure.cluster.x-k8s.io_dockermachinepools.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &u.Object); err != nil {
			panic(err)
		}
		u.SetLabels(map[string]string{"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2", "cluster.x-k8s.io/provider": "infrastructure-world"})
		if strings.Contains(file, "outriggerclustertemplates") { // so that one is of another group
			u.SetName("outriggerclustertemplates." + otherGroup)
			unstructured.SetNestedField(u.Object, otherGroup, "spec", "group")
		}
		all = append(all, u)
	}
	return all
})

// request is an object of ours that a manager looks at.
type request struct {
	kind string
	types.NamespacedName
}

// subscribe has f told what is written.
func (m *memory) subscribe(f func(request)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, f)
	for _, list := range m.infra {
		for _, r := range list {
			f(r)
		}
	}
}

// tell has managers look at all of the namespace where something was written.
func (m *memory) tell(o client.Object, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		for _, r := range m.infra[o.GetNamespace()] {
			for _, f := range m.told {
				f(r)
			}
		}
	}
	return err
}

// ours are the kinds that a manager works on.
func ours(kind string) bool {
	return kind == "OutriggerCluster" || kind == "OutriggerMachine" || kind == "DockerMachinePool"
}

func kindOf(o client.Object) string {
	if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	name := fmt.Sprintf("%T", o)
	return name[strings.LastIndex(name, ".")+1:]
}

// get converts as our webhooks do.
func (m *memory) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok || u.GroupVersionKind().GroupVersion() != infrav1beta1.GroupVersion {
		return c.Get(ctx, key, o, options...)
	}
	gvk := u.GroupVersionKind()
	spoke, err := inOlder(ctx, c, gvk.Kind, key)
	if err != nil {
		return err
	}
	if u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(spoke); err != nil {
		return err
	}
	u.SetGroupVersionKind(gvk)
	m.older(u)
	return nil
}

func inOlder(ctx context.Context, c client.Reader, kind string, key client.ObjectKey) (client.Object, error) {
	if kind == "OutriggerCluster" {
		hub, spoke := &infrav1.OutriggerCluster{}, &infrav1beta1.OutriggerCluster{}
		if err := c.Get(ctx, key, hub); err != nil {
			return nil, err
		}
		return spoke, conversion.FromHub(ctx, hub, spoke)
	}
	hub, spoke := &infrav1.OutriggerMachine{}, &infrav1beta1.OutriggerMachine{}
	if err := c.Get(ctx, key, hub); err != nil {
		return nil, err
	}
	return spoke, conversion.FromHub(ctx, hub, spoke)
}

func (m *memory) create(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
	m.number(o)
	err := c.Create(ctx, o, options...)
	if _, ok := o.(*unstructured.Unstructured); ok && err == nil {
		err = c.Get(ctx, client.ObjectKeyFromObject(o), o) // an API server returns what it keeps
	}
	m.introduce(o)
	return m.tell(o, err)
}

func (m *memory) number(o client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serial++
	o.SetUID(types.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", m.serial)))
	o.SetCreationTimestamp(metav1.NewTime(time.Now()))
	o.SetGeneration(1)
}

// introduce lets managers know of an object, but not before its creator has the
// answer.
func (m *memory) introduce(o client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if kind := kindOf(o); ours(kind) {
		m.infra[o.GetNamespace()] = append(m.infra[o.GetNamespace()], request{kind, client.ObjectKeyFromObject(o)})
	}
}

func (m *memory) update(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
	if err := m.ask(ctx, c, o, isDryRun(options)); err != nil {
		return err
	}
	return m.tell(o, c.Update(ctx, o, options...))
}

func isDryRun(options []client.UpdateOption) bool {
	o := client.UpdateOptions{}
	o.ApplyOptions(options)
	return len(o.DryRun) > 0
}

func (m *memory) patch(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	if strings.HasSuffix(kindOf(o), "Template") {
		if err := m.ask(ctx, c, o, false); err != nil { // the kit patches what it has changed
			return err
		}
	}
	return m.tell(o, c.Patch(ctx, o, patch, options...))
}

// ask has the webhooks asked about a template.
func (m *memory) ask(ctx context.Context, c client.Client, o client.Object, dryRun bool) error {
	after, ok := o.(*unstructured.Unstructured)
	if !ok || !strings.HasSuffix(after.GetKind(), "Template") {
		return nil
	}
	before := &unstructured.Unstructured{}
	before.SetGroupVersionKind(after.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), before); err != nil {
		return err
	}
	return m.admit(before, after, dryRun)
}

func (m *memory) delete(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
	return m.tell(o, c.Delete(ctx, o, options...))
}

func (m *memory) patchStatus(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	err := c.SubResource(name).Patch(ctx, o, patch, options...)
	if ours(kindOf(o)) {
		return err // what a manager writes into a status does not wake it
	}
	return m.tell(o, err)
}

func (m *memory) updateStatus(ctx context.Context, c client.Client, name string, o client.Object, options ...client.SubResourceUpdateOption) error {
	return m.tell(o, c.SubResource(name).Update(ctx, o, options...))
}
