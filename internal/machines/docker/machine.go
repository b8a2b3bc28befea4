// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/docker/nodeagent"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

// Steps on the way to a machine, in their order. Each can be derived from the
// engine's state, so a manager may die at any time.
const (
	stepCreate    = "CreateContainer"
	stepStart     = "StartContainer"
	stepImages    = "CopyImages"
	stepBootstrap = "Bootstrap"
)

// Conditions of a machine.
const (
	ContainerProvisionedCondition = "ContainerProvisioned"
	PreLoadedImagesReadyCondition = "PreLoadedImagesReady"
	BootstrapCompletedCondition   = "BootstrapCompleted"
)

// Reasons of conditions of machines.
const (
	ReasonWaitingForContainer = "WaitingForContainer"
	ReasonCopyingImages       = "CopyingImages"
	ReasonImagesCopied        = "ImagesCopied"
	ReasonWaitingForAgent     = "WaitingForNodeAgent"
	ReasonBootstrapRunning    = "BootstrapRunning"
	ReasonBootstrapDone       = "BootstrapDone"
	ReasonBootstrapFailed     = "BootstrapFailed"
	ReasonBootstrapTimeout    = "BootstrapTimedOut"
	ReasonRestarting          = "InstanceRestarting"
)

// providerPrefix is the beginning of a providerID; a container's name follows.
const providerPrefix = "docker:////"

// machine is a wanted machine.
type machine struct {
	identity
	spec  infrav1.DockerMachineSpec
	image string
	// entrypoint takes the place of the image's own; nil leaves that.
	entrypoint []string
	domain     string
	// balanced says that the cluster has a load balancer.
	balanced bool
	seed     nodeagent.Seed
	// began is when its making did, by the manager's clock.
	began time.Time
	data  []byte
}

func (b *Backend) machineOf(s *reconciler.MachineScope, infra *infrav1.DockerMachine) machine {
	m := machine{spec: infra.Spec, domain: s.FailureDomain, data: s.Bootstrap, balanced: true, began: s.Began}
	m.identity = identity{s.Key, s.ClusterKey, infra.Namespace, infra.Name, roleWorker}
	if s.ControlPlane {
		m.role = roleControlPlane
	}
	if cluster, ok := s.InfraCluster.(*infrav1.DockerCluster); ok {
		m.balanced = !cluster.Spec.DisableLoadBalancer
	}
	m.image = infra.Spec.CustomImage
	if m.image == "" {
		m.image = b.cfg.NodeImage
		if s.Machine != nil && s.Machine.Spec.Version != "" && !tagged(m.image) {
			m.image += ":" + strings.ReplaceAll(s.Machine.Spec.Version, "+", "_") // no tag has a plus
		}
	}
	m.seed = nodeagent.Seed{
		Format: s.Format, Hostname: hostname(infra.Name), InstanceID: m.unique(), ProviderID: providerPrefix + m.unique(),
		Images: len(infra.Spec.PreLoadImages),
	}
	return m
}

func tagged(image string) bool {
	return strings.ContainsAny(image[strings.LastIndex(image, "/")+1:], ":@")
}

const maxHostname = 63

// hostname returns the name of the machine's Node. A name that is too long ends with a
// hash: machines of one set differ only in the last letters of their names.
func hostname(name string) string {
	if len(name) <= maxHostname {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	end := "-" + hex.EncodeToString(sum[:5])
	return strings.TrimRight(name[:maxHostname-len(end)], "-.") + end
}

// EnsureMachine implements reconciler.MachineBackend.
func (b *Backend) EnsureMachine(ctx context.Context, scope *reconciler.MachineScope) (reconciler.MachineState, error) {
	infra, ok := scope.Infra.(*infrav1.DockerMachine)
	if !ok {
		return reconciler.MachineState{}, fmt.Errorf("%w: %T is not a DockerMachine", provider.ErrInvalidArgument, scope.Infra)
	}
	existing, err := b.containerWith(ctx, labelKey, scope.Key, labelCluster, scope.ClusterKey)
	if err != nil {
		return reconciler.MachineState{}, classify(err)
	}
	if infra.Spec.ProviderID != "" {
		own := identity{key: scope.Key, name: infra.Name}.unique()
		state := observe(infra.Spec.ProviderID, own, existing)
		if state.RequeueAfter = later; state.Reason != "" {
			state.RequeueAfter = healing // an engine that has just started starts containers one by one
		}
		return state, nil
	}
	state, err := b.advance(ctx, b.machineOf(scope, infra), existing)
	return state, classify(err)
}

// advance takes the next step towards a machine that is complete.
func (b *Backend) advance(ctx context.Context, m machine, c *container.InspectResponse) (reconciler.MachineState, error) {
	switch {
	case c == nil:
		return b.create(ctx, m)
	case isRemoving(c.State):
		return waiting(stepCreate, ReasonContainerRemoved, "the engine is removing the machine's container"), b.remove(ctx, c.ID)
	case c.State.Status == container.StateCreated:
		return b.start(ctx, m, c)
	}
	state := observe(providerPrefix+nameOf(c), nameOf(c), c)
	state.Provisioned = false
	if state.Reason != "" {
		state.Step, state.RequeueAfter = stepStart, healing
		return state, nil
	}
	if m.role == roleControlPlane {
		if err := b.rebalance(ctx, m.cluster, ""); err != nil {
			return state, err
		}
	}
	return b.bootstrap(ctx, m, c, state)
}

// waiting returns the state of a machine without a running container.
func waiting(step, reason, message string) reconciler.MachineState {
	return reconciler.MachineState{Step: step, Reason: reason, Message: message, RequeueAfter: soon,
		Conditions: []metav1.Condition{isFalse(ContainerProvisionedCondition, reason, message)}}
}

// slowly sets the longer interval, for when an event will come or something is wrong.
func slowly(state reconciler.MachineState) reconciler.MachineState {
	state.RequeueAfter = healing
	return state
}

// pace returns how soon to check again for the end of a bootstrap, which has no
// event: the longer it takes, the less often.
func (m machine) pace(c *container.InspectResponse, now time.Time) time.Duration {
	return min(max(m.age(c, now)/10, soon), healing)
}

func (b *Backend) start(ctx context.Context, m machine, c *container.InspectResponse) (reconciler.MachineState, error) {
	state := waiting(stepStart, ReasonWaitingForContainer, "the container is started")
	m.seed.NodeIPs, m.entrypoint = nodeIPs(c.Config.Labels), c.Config.Entrypoint
	err := b.seedAndStart(ctx, m, c.ID)
	if known := classify(err); known != nil && reasonIs(known, ReasonAddressTaken, ReasonMountMissing, ReasonStartInterrupted) {
		// It has never run: one with another address, other mounts, or another id
		// takes its place.
		removing := b.remove(ctx, c.ID)
		if removing == nil {
			_, removing = b.removeVolumes(ctx, labelKey, m.key)
		}
		if removing != nil {
			return state, fmt.Errorf("%w; and it cannot be removed: %v", known, removing)
		}
	}
	return state, err
}

// bootstrap reads how far the node agent is. Images are copied meanwhile.
func (b *Backend) bootstrap(ctx context.Context, m machine, c *container.InspectResponse, state reconciler.MachineState) (reconciler.MachineState, error) {
	state.Step, state.RequeueAfter = stepBootstrap, m.pace(c, time.Now())
	if err := b.loadImages(ctx, m, c, &state); err != nil {
		return state, err
	}
	journal, err := b.journal(ctx, c.ID)
	if err != nil {
		return state, err
	}
	reason, message := m.judge(journal, c, time.Now())
	if reason == ReasonBootstrapDone {
		state.Conditions = append(state.Conditions, metav1.Condition{Type: BootstrapCompletedCondition, Status: metav1.ConditionTrue, Reason: reason, Message: message})
		state.Provisioned, state.RequeueAfter = true, later
		return state, nil
	}
	if state.Reason == "" {
		state.Reason, state.Message = reason, message
	}
	if reason == ReasonBootstrapFailed || reason == ReasonBootstrapTimeout {
		state.RequeueAfter = later
	}
	state.Conditions = append(state.Conditions, isFalse(BootstrapCompletedCondition, reason, message))
	return state, nil
}

func (b *Backend) loadImages(ctx context.Context, m machine, c *container.InspectResponse, state *reconciler.MachineState) error {
	if len(m.spec.PreLoadImages) == 0 {
		return nil
	}
	last := fmt.Sprintf("%s/%d.ready", imagesDir, len(m.spec.PreLoadImages)-1)
	mark, err := b.read(ctx, c.ID, last)
	if err != nil {
		return err
	}
	if mark != nil {
		state.Conditions = append(state.Conditions, isTrue(PreLoadedImagesReadyCondition, ReasonImagesCopied))
		return nil
	}
	_, err = b.tasks.do("images/"+m.key, b.ownerOf(m.labels()), func(ctx context.Context) error { return b.copyImages(ctx, c.ID, m.spec.PreLoadImages) })
	if err != nil {
		return err
	}
	state.Step, state.Reason, state.Message = stepImages, ReasonCopyingImages, fmt.Sprintf("%d images are copied into the machine", len(m.spec.PreLoadImages))
	state.Conditions = append(state.Conditions, isFalse(PreLoadedImagesReadyCondition, state.Reason, state.Message))
	return nil
}

// observe returns the state of a machine's container without changing it. Its name is
// unique to the machine.
func observe(providerID, own string, c *container.InspectResponse) reconciler.MachineState {
	state := reconciler.MachineState{ProviderID: providerID, Provisioned: true}
	name := strings.TrimPrefix(providerID, providerPrefix)
	switch {
	case name != own || c != nil && nameOf(c) != name:
		state.Provisioned, state.Reason = false, reconciler.ReasonInfrastructureOfAnother
		state.Message = fmt.Sprintf("the machine's container is %s, and spec.providerID names %s: it is that of another machine", own, name)
	case c == nil:
		state.Reason, state.Message = reconciler.ReasonInstanceGone, "there is no container "+name+" any more: delete the Machine"
	default:
		state.FailureDomain = c.Config.Labels[labelDomain]
		state.Addresses = addressesOf(c)
		state.Reason, state.Message = unhealthyReason(c.State)
	}
	if state.Reason == "" {
		state.Conditions = []metav1.Condition{isTrue(ContainerProvisionedCondition, ReasonRunning)}
	} else {
		state.Conditions = []metav1.Condition{isFalse(ContainerProvisionedCondition, state.Reason, state.Message)}
	}
	return state
}

// unhealthyReason returns why a container is not a working machine; both are
// empty if it is.
func unhealthyReason(s *container.State) (reason, message string) {
	switch s.Status {
	case container.StateRunning:
		return "", ""
	case container.StatePaused:
		return reconciler.ReasonInstanceStopped, "the container is paused: docker unpause lets it go on"
	case container.StateRestarting:
		return ReasonRestarting, fmt.Sprintf("the container has ended with code %d and is started again; docker logs says more", s.ExitCode)
	}
	return reconciler.ReasonInstanceStopped, fmt.Sprintf("the container is %s, with code %d: docker start it, or delete the Machine", s.Status, s.ExitCode)
}

func addressesOf(c *container.InspectResponse) []clusterv1.MachineAddress {
	list := []clusterv1.MachineAddress{{Type: clusterv1.MachineHostName, Address: c.Config.Hostname}}
	for _, addr := range addressesIn(c.Config.Labels) {
		list = append(list, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: addr},
			clusterv1.MachineAddress{Type: clusterv1.MachineExternalIP, Address: addr})
	}
	return list
}

// DeleteMachine implements reconciler.MachineBackend.
func (b *Backend) DeleteMachine(ctx context.Context, scope *reconciler.MachineScope) (gone bool, err error) {
	b.tasks.forget("images/" + scope.Key)
	gone, err = b.deleteMachine(ctx, scope.Key)
	return gone, classify(err)
}

func (b *Backend) deleteMachine(ctx context.Context, key string) (gone bool, err error) {
	list, err := b.containers(ctx, labelKey, key)
	if err != nil {
		return false, err
	}
	for _, c := range list {
		if err := b.removeMachine(ctx, c.ID, c.Labels); err != nil {
			return false, err
		}
	}
	volumes, err := b.removeVolumes(ctx, labelKey, key)
	if err != nil || len(list)+volumes == 0 {
		return err == nil, err
	}
	left, err := b.containers(ctx, labelKey, key)
	return len(left) == 0 && err == nil, err
}

func (b *Backend) removeMachine(ctx context.Context, id string, labels map[string]string) error {
	if labels[labelRole] == roleControlPlane {
		// New connections go to the others from now on.
		if err := b.rebalance(ctx, labels[labelCluster], labels[labelKey]); err != nil {
			return err
		}
	}
	return b.remove(ctx, id)
}

var _ reconciler.Sizer = (*Backend)(nil)

// architectures are those of nodes by what kernels call them.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "s390x": "s390x", "ppc64le": "ppc64le"}

// MachineSize returns the size of the engine's host, or the part of it that
// spec.resources takes.
func (b *Backend) MachineSize(ctx context.Context, template reconciler.InfraTemplate, _ reconciler.InfraCluster) (s infrav1.MachineTemplateStatus, err error) {
	t, ok := template.(*infrav1.DockerMachineTemplate)
	if !ok {
		return s, fmt.Errorf("%w: %T is not a DockerMachineTemplate", provider.ErrInvalidArgument, template)
	}
	host, err := b.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return s, classify(fmt.Errorf("ask the engine what its host has: %w", err))
	}
	limits := t.Spec.Template.Spec.Resources
	s.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    least(resource.NewQuantity(int64(host.Info.NCPU), resource.DecimalSI), limits.CPU),
		corev1.ResourceMemory: least(resource.NewQuantity(host.Info.MemTotal, resource.BinarySI), limits.Memory),
	}
	if arch := architectures[host.Info.Architecture]; arch != "" && host.Info.OSType != "" {
		s.NodeInfo = infrav1.NodeInfo{Architecture: arch, OperatingSystem: host.Info.OSType}
	}
	return s, nil
}

func least(has, limit *resource.Quantity) resource.Quantity {
	if limit != nil && limit.Cmp(*has) < 0 {
		return *limit
	}
	return *has
}
