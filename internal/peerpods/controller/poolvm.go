// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/handover"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

const (
	// slowBoot is how old a VM is when the pool begins to say why it does not answer.
	slowBoot = 30 * time.Second
	// claimGrace is how long a claim may be without the pod's own word for it.
	claimGrace = 2 * time.Minute
)

// PoolVMs brings one VM of a pool from its PeerPod to where it waits, and removes it when
// its pod is gone. A VM that fails on the way is deleted, as is one whose key this process
// does not have, since an earlier one began it: the pool begins another.
type PoolVMs struct {
	*Reconciler
	probe func(ctx context.Context, address string, config *tls.Config) error

	bundles  sync.Map // *podtls.Bundle by name of the PeerPod, until the VM is made
	memories sync.Map // *memory by name of the pool
	taken    sync.Map // time.Time by name of the PeerPod: when this process saw the claim
}

func newPools(r *Reconciler) *Pools {
	probe := func(ctx context.Context, address string, config *tls.Config) error {
		return handover.Send(ctx, address, config, nil)
	}
	return &Pools{Reconciler: r, vms: &PoolVMs{Reconciler: r, probe: probe}}
}

func (p *PoolVMs) memory(pool string) *memory {
	m, _ := p.memories.LoadOrStore(pool, &memory{claims: map[string]time.Time{}, full: map[string]time.Time{}})
	return m.(*memory)
}

// failed notes why a VM of the pool could not be made.
func (p *PoolVMs) failed(pool *v1alpha1.PodVMPool, step string, err error) {
	p.memory(pool.Name).fail(step, err, p.now())
	about := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodVMPool", Name: pool.Name, UID: pool.UID}
	p.events.Emit(about, nil, corev1.EventTypeWarning, claims.Reason(err), "Fill", err.Error()+"; "+claims.Hint(err))
}

// begin makes the PeerPod of another VM. Its key stays in memory.
func (p *PoolVMs) begin(ctx context.Context, pool *v1alpha1.PodVMPool, providerName, template, zone string, node []byte) error {
	claim := claims.Claim{Provider: providerName, Cluster: p.options.Cluster, Namespace: p.options.Namespace}
	pp := claims.NewPoolVM(pool, claim, template, "")
	bundle, err := podtls.NewBundle(pp.Name, p.now())
	if err != nil {
		return err
	}
	pp.Spec.Pool.Authority, pp.Spec.Pool.Zone = string(bundle.CAPEM), zone
	bundle.ClientCertPEM, bundle.ClientKeyPEM = node, nil
	p.bundles.Store(pp.Name, bundle)
	if err := p.writer.Create(ctx, pp); err != nil {
		p.bundles.Delete(pp.Name)
		return fmt.Errorf("create the PeerPod of another VM of pool %s: %w", pool.Name, err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler for the PeerPods of pools.
func (p *PoolVMs) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pp := &v1alpha1.PeerPod{}
	if there, err := p.read(ctx, request, pp); !there {
		return reconcile.Result{}, err
	}
	switch {
	case pp.DeletionTimestamp != nil || pp.Spec.Pool == nil:
		p.bundles.Delete(pp.Name)
		p.taken.Delete(pp.Name)
		return reconcile.Result{}, nil
	case pp.Spec.Pool.Claim != nil:
		return ignoreStale(p.inUse(ctx, pp))
	}
	pool, err := p.poolOf(ctx, pp)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case pool == nil:
		return reconcile.Result{}, p.retire(ctx, []*v1alpha1.PeerPod{pp})
	case pp.Spec.InstanceID == "":
		return ignoreStale(p.create(ctx, pool, pp))
	case !claims.Waits(pp):
		return ignoreStale(p.await(ctx, pool, pp))
	}
	return reconcile.Result{}, nil
}

// poolOf returns the pool of a VM; nil when there is none any more.
func (p *PoolVMs) poolOf(ctx context.Context, pp *v1alpha1.PeerPod) (*v1alpha1.PodVMPool, error) {
	pool := &v1alpha1.PodVMPool{}
	for _, reader := range []client.Reader{p.cached, p.live} {
		err := reader.Get(ctx, client.ObjectKey{Name: pp.Spec.Pool.Name}, pool)
		if !apierrors.IsNotFound(err) {
			return pool, err
		}
	}
	return nil, nil
}

// create asks the cloud for the VM. It asks once: afterwards nobody has the VM's key.
func (p *PoolVMs) create(ctx context.Context, pool *v1alpha1.PodVMPool, pp *v1alpha1.PeerPod) (reconcile.Result, error) {
	of, ok := p.bundles.LoadAndDelete(pp.Name)
	if !ok {
		return reconcile.Result{}, p.retire(ctx, []*v1alpha1.PeerPod{pp})
	}
	instance, err := p.request(ctx, pool, pp, of.(*podtls.Bundle))
	if instance != nil && instance.ID != "" && provider.CheckID(instance.ID) == nil {
		now, noteErr := p.claims.Update(ctx, pp, claims.Created(describe(instance)))
		if noteErr != nil {
			return reconcile.Result{}, noteErr // its key is in the tags of the instance
		}
		pp = now
	}
	if err != nil {
		p.failed(pool, "create-instance", err)
		if errors.Is(err, provider.ErrCapacity) {
			p.memory(pool.Name).fullIn(pp.Spec.Pool.Zone, p.now())
		}
		return reconcile.Result{}, p.retire(ctx, []*v1alpha1.PeerPod{pp})
	}
	return reconcile.Result{RequeueAfter: time.Second}, nil
}

func (p *PoolVMs) request(ctx context.Context, pool *v1alpha1.PodVMPool, pp *v1alpha1.PeerPod, b *podtls.Bundle) (*provider.Instance, error) {
	c, err := p.clouds.Get(pp.Spec.CloudProvider)
	if err != nil {
		return nil, missingProvider{err}
	}
	config := apf.Config{AwaitPod: true, PrefetchImages: pool.Spec.Images, PodName: pool.Name, PodNamespace: pp.Namespace,
		TLSServerKey: string(b.ServerKeyPEM), TLSServerCert: string(b.ServerCertPEM), TLSClientCA: string(b.ClientCertPEM)}
	text, err := config.Marshal()
	if err != nil {
		return nil, err
	}
	data := cloudinit.CloudConfig{WriteFiles: []cloudinit.WriteFile{{Path: apf.DefaultPath, Content: string(text)}}}
	if registries := p.insecureRegistries(); registries != "" && len(pool.Spec.Images) > 0 {
		data.WriteFiles = append(data.WriteFiles, cloudinit.WriteFile{Path: apf.InsecureRegistriesPath, Content: registries})
	}
	spec := claims.VMSpec(&pool.Spec)
	spec.Zone = pp.Spec.Pool.Zone
	spec.Tags = map[string]string{provider.TagPod: provider.TagValue(pool.Name), provider.TagNamespace: provider.TagValue(pp.Namespace)}
	instance, err := c.Create(ctx, pool.Name, pp.Spec.SandboxID, data, spec)
	switch {
	case err != nil:
	case spec.Zone != "" && instance.Zone != spec.Zone:
		err = fmt.Errorf("%w: instance %s was to be in zone %s and is in %q", provider.ErrUnknown, instance.ID, spec.Zone, instance.Zone)
	case len(instance.IPs) == 0:
		err = fmt.Errorf("%w: instance %s has no address", provider.ErrUnknown, instance.ID)
	}
	return instance, err
}

// insecureRegistries returns the registries that VMs may reach without TLS, a line each. The node's
// own is not among them: the controller does not know which node a VM's pod will be on.
func (p *PoolVMs) insecureRegistries() string {
	list := strings.FieldsFunc(p.clouds.Setting("INSECURE_REGISTRIES"), func(r rune) bool { return r == ',' || r == ' ' })
	return strings.Join(slices.DeleteFunc(list, func(one string) bool { return one == apf.NodeItself }), "\n")
}

// await asks a VM that boots whether it waits for a pod.
func (p *PoolVMs) await(ctx context.Context, pool *v1alpha1.PodVMPool, pp *v1alpha1.PeerPod) (reconcile.Result, error) {
	age := p.now().Sub(pp.CreationTimestamp.Time)
	step, err, remark := "boot", error(nil), error(nil)
	if booted := meta.IsStatusConditionTrue(pp.Status.Conditions, v1alpha1.ConditionConnected); !booted {
		if err = p.ask(ctx, pp); errors.Is(err, handover.ErrUnprepared) {
			err, remark = nil, err
		}
	}
	if err == nil && pp.Spec.Pool.Standby == v1alpha1.StandbyStopped {
		step = "stop"
		err = p.stop(ctx, pp)
	}
	if err == nil {
		p.memory(pool.Name).succeed()
		if remark != nil {
			p.memory(pool.Name).note("prepare", fmt.Errorf("VM %s: %w", pp.Spec.InstanceID, remark), p.now())
		}
		_, err = p.claims.Update(ctx, pp, claims.Ready)
		return reconcile.Result{}, err
	}
	if age > slowBoot {
		p.memory(pool.Name).note(step, fmt.Errorf("VM %s does not wait yet: %w", pp.Spec.InstanceID, err), p.now())
	}
	if age > handover.BootLimit {
		p.failed(pool, step, fmt.Errorf("VM %s does not wait for a pod after %s: %w", pp.Spec.InstanceID, age.Round(time.Second), err))
		return reconcile.Result{}, p.retire(ctx, []*v1alpha1.PeerPod{pp})
	}
	return reconcile.Result{RequeueAfter: handover.ProbePause(age)}, nil
}

// stop stops a VM that has booted. That it has is on record before: a stopped one answers nobody.
func (p *PoolVMs) stop(ctx context.Context, pp *v1alpha1.PeerPod) error {
	booted, err := p.claims.Update(ctx, pp, claims.Connected)
	if err != nil {
		return err
	}
	*pp = *booted
	c, err := p.clouds.Get(pp.Spec.CloudProvider)
	if err != nil {
		return missingProvider{err}
	}
	return c.PowerOff(ctx, pp.Spec.InstanceID)
}

func (p *PoolVMs) ask(ctx context.Context, pp *v1alpha1.PeerPod) error {
	if pp.Status.Instance == nil || len(pp.Status.Instance.Addresses) == 0 {
		return errors.New("its PeerPod has no address")
	}
	secret := &corev1.Secret{}
	if err := p.live.Get(ctx, client.ObjectKey{Namespace: pp.Namespace, Name: claims.PoolSecret}, secret); err != nil {
		return err
	}
	config, err := podtls.ClientConfig(podtls.ClientOptions{ServerName: pp.Name, CAPEM: []byte(pp.Spec.Pool.Authority),
		CertPEM: secret.Data[corev1.TLSCertKey], KeyPEM: secret.Data[corev1.TLSPrivateKeyKey], MinVersion: tls.VersionTLS13})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, handover.ProbeTimeout)
	defer cancel()
	return p.probe(ctx, net.JoinHostPort(pp.Status.Instance.Addresses[0], handover.Port), config)
}

// inUse deletes the PeerPod of a VM that a pod has taken when that pod's own is gone, or
// never said that it has the VM: then the node failed between the two.
func (p *PoolVMs) inUse(ctx context.Context, pp *v1alpha1.PeerPod) (reconcile.Result, error) {
	claim := pp.Spec.Pool.Claim
	used, err := p.uses(ctx, pp, claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	seen, _ := p.taken.LoadOrStore(pp.Name, p.now()) // the time in the claim is by the clock of a node
	if wait := claimGrace - p.now().Sub(seen.(time.Time)); used || wait > 0 {
		return reconcile.Result{RequeueAfter: max(min(wait, claimGrace), time.Minute)}, nil
	}
	p.log.Info("the pod that had taken a VM of a pool is gone", "pool", pp.Spec.Pool.Name, "instance", pp.Spec.InstanceID, "namespace", claim.Namespace, "peerpod", claim.Name)
	return reconcile.Result{}, client.IgnoreNotFound(p.claims.API.Delete(ctx, pp.Namespace, pp.Name, pp.UID))
}

func (p *PoolVMs) uses(ctx context.Context, pp *v1alpha1.PeerPod, claim *v1alpha1.PoolClaim) (bool, error) {
	of := &v1alpha1.PeerPod{}
	for _, reader := range []client.Reader{p.cached, p.live} {
		err := reader.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: claim.Name}, of)
		if client.IgnoreNotFound(err) != nil {
			return false, err
		}
		if err == nil && of.Spec.PoolVM == pp.Namespace+"/"+pp.Name {
			return true, nil // also one in deletion: its node, or this program, goes on with both
		}
	}
	return false, nil
}
