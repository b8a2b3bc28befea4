// SPDX-License-Identifier: Apache-2.0

// Package ccm is a cloud provider, in the sense of k8s.io/cloud-provider, over
// any provider of package provider that can list and look up instances.
//
// The controllers of k8s.io/cloud-provider delete a Node that is not Ready as
// soon as InstanceExists returns false once. This package returns false only
// with proof: see [Cloud.InstanceExists].
package ccm

import (
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/keylock"
)

// Options configure a cloud. Zero durations have defaults.
type Options struct {
	// Name is the provider's, as in providerIDs.
	Name     string
	Provider provider.Provider
	// Tags are those that all instances of this cluster carry. Without them the
	// tag [provider.TagCluster] of the instances of Nodes that have a providerID
	// is used.
	Tags map[string]string
	// Labels are added to every Node; LabelsFromTags maps a tag to the label
	// that gets its value.
	Labels, LabelsFromTags map[string]string
	// Format is how providerIDs are written: [FormatAuto] by default.
	Format Format

	// Balancers, if any, stand in for load balancers of the provider.
	Balancers provider.LoadBalancerController

	// CallTimeout bounds every call to the provider: a minute.
	CallTimeout time.Duration
	// ListAge is how old a list of instances may be: 10 seconds. A list is never
	// the proof that an instance is gone unless it was made for that.
	ListAge time.Duration
	// GoneAfter is how far apart the first and the last check that did not find
	// an instance must be: 15 seconds.
	GoneAfter time.Duration
	// EmptyAfter is how long an inventory without any instance of the cluster's
	// Nodes must last before it is trusted; 0 means never.
	EmptyAfter time.Duration
	// LeftAfter is how long a load balancer stays after its Service is gone; 0
	// means for ever.
	LeftAfter time.Duration
	// Pass is the time between two checks of the Nodes that are not Ready, as
	// --node-monitor-period says. Checks that are much further apart do not
	// count as consecutive.
	Pass time.Duration
	// RepeatAfter is the pause before the same Event is sent again: 5 minutes.
	RepeatAfter time.Duration

	// Observe, if any, is called after every call, Failed for every Node that
	// could not be initialized, Held for every check that found no instance but
	// proves nothing.
	Observe func(Call)
	Failed  func(reason string)
	Held    func(reason string)
	Now     func() time.Time
}

func (o *Options) complete() {
	for value, standard := range map[*time.Duration]time.Duration{
		&o.CallTimeout: time.Minute, &o.ListAge: 10 * time.Second, &o.GoneAfter: 15 * time.Second, &o.RepeatAfter: 5 * time.Minute,
		&o.Pass: 5 * time.Second,
	} {
		if *value == 0 {
			*value = standard
		}
	}
	if o.Format == "" {
		o.Format = FormatAuto
	}
	if o.Observe == nil {
		o.Observe = func(Call) {}
	}
	for _, call := range []*func(string){&o.Failed, &o.Held} {
		if *call == nil {
			*call = func(string) {}
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Cloud implements [cloudprovider.Interface] and [cloudprovider.InstancesV2].
type Cloud struct {
	options Options
	fleet   *fleet
	events  record.EventRecorder // nil: Events go nowhere
	nodes   corelisters.NodeLister
	// balancing locks the load balancer of a key.
	balancing keylock.Locks

	mu      sync.Mutex
	absent  map[string]absence      // by id
	emitted map[string]emittedEvent // by the Node's UID
}

var (
	_ cloudprovider.Interface    = (*Cloud)(nil)
	_ cloudprovider.InstancesV2  = (*Cloud)(nil)
	_ cloudprovider.InformerUser = (*Cloud)(nil)
)

// New returns the cloud. The provider MUST be able to list and look up
// instances.
func New(o Options) (*Cloud, error) {
	o.complete()
	if err := checkLabels(o); err != nil {
		return nil, err
	}
	c := &Cloud{options: o, absent: map[string]absence{}, emitted: map[string]emittedEvent{}}
	lister, lists := provider.As[provider.Lister](o.Provider)
	getter, gets := provider.As[provider.Getter](o.Provider)
	if !lists || !gets {
		return nil, fmt.Errorf("%w: provider %s cannot list and look up instances (capabilities Lister and Getter; it has %q), without which instances of Nodes cannot be found: a cloud controller manager needs both", provider.ErrUnimplemented, o.Name, provider.Capabilities(o.Provider))
	}
	c.fleet = &fleet{options: &c.options, lister: lister, getter: getter, listing: make(chan struct{}, 1), clusters: map[string]bool{}}
	return c, nil
}

// SetEvents sets the recorder of Nodes' Events; before that they are dropped.
func (c *Cloud) SetEvents(events record.EventRecorder) { c.events = events }

// SetInformers implements [cloudprovider.InformerUser].
func (c *Cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.nodes = factory.Core().V1().Nodes().Lister()
}

// Initialize does nothing: everything was set up before.
func (c *Cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// Instances returns false: InstancesV2 replaces it.
func (c *Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// InstancesV2 returns the cloud itself.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }

// Zones returns false: InstancesV2 has zones, too.
func (c *Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters returns false.
func (c *Cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Routes returns false: the network is the network plugin's.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) { return nil, false }

// ProviderName returns the provider's name.
func (c *Cloud) ProviderName() string { return c.options.Name }

// HasClusterID returns true.
func (c *Cloud) HasClusterID() bool { return true }

func uninitialized(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == api.TaintExternalCloudProvider })
}

type emittedEvent struct {
	reason string
	at     time.Time
}

func (c *Cloud) failed(node *v1.Node, err error) {
	reason := reasonOf(err)
	c.options.Failed(reason)
	kind := v1.EventTypeWarning
	if reason == ReasonForeign {
		kind = v1.EventTypeNormal
	}
	c.emit(node, kind, reason, "the Node is not initialized: "+err.Error())
}

// refuseDeletion emits an Event about why a Node is not deleted, and returns
// err.
func (c *Cloud) refuseDeletion(node *v1.Node, reason string, err error) error {
	c.options.Held(reason)
	if reason != HeldSecondLook {
		c.emit(node, v1.EventTypeWarning, reason, "the Node is not deleted: "+err.Error())
	}
	return err
}

// emit sends an Event unless it is a recent repetition: controllers retry many
// times a minute.
func (c *Cloud) emit(node *v1.Node, kind, reason, text string) {
	now, key := c.options.Now(), string(node.UID)
	c.mu.Lock()
	for other, t := range c.emitted { // also those of Nodes that are gone
		if now.Sub(t.at) >= c.options.RepeatAfter {
			delete(c.emitted, other)
		}
	}
	last, known := c.emitted[key]
	again := !known || last.reason != reason
	if again {
		c.emitted[key] = emittedEvent{reason, now}
	}
	c.mu.Unlock()
	if again && c.events != nil {
		// The Node is named as Events of the node controllers do.
		c.events.Event(&v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}, kind, reason, text)
	}
}

func (c *Cloud) forget(node *v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.emitted, string(node.UID))
}
