// SPDX-License-Identifier: Apache-2.0

// Package conformance proves, from outside, that an infrastructure provider
// of Cluster API keeps the contract v1beta2. It needs an API server where the
// definitions of Cluster API's core and of the provider are installed and the
// provider's manager works, and one object of each of its kinds.
//
// Core itself may work there or not. Where it does not the kit plays its part:
// it owns infrastructure, copies what core copies, and deletes in core's order.
// Bootstrap data is the kit's own in both cases.
//
// Every check is a named sentence of the contract with namespaces of its own.
// What exists outside is seen only through [Subject.Inventory], and restarts
// need [Subject.Restart]; checks that need what is not given are skipped.
package conformance

import (
	"cmp"
	"context"
	"io/fs"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Subject is the provider under test and what the kit may do with it.
type Subject struct {
	// Client acts as administrator on the API server where the provider's
	// manager works. It must not read from a cache, and knows the kinds of
	// [Scheme].
	Client client.WithWatch
	// Objects are the provider's own.
	Objects Objects
	// CoreRuns says that Cluster API's core works on the same API server.
	// Otherwise the kit plays its part.
	CoreRuns bool
	// Inventory, if any, returns an id for everything that exists outside: what
	// a machine was made of. Others may have things there too.
	Inventory func(context.Context) ([]string, error)
	// Restart, if any, kills the provider's manager and starts it again; it
	// does not wait until that works.
	Restart func(context.Context) error
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter of the
	// objects that the manager works on; empty: all.
	WatchFilter string
	// Release, if any, is the folder of a release: metadata.yaml and
	// infrastructure-components.yaml.
	Release fs.FS
	// Limits replace the default limits where not zero.
	Limits Limits
}

// Limits are how long the kit waits.
type Limits struct {
	// Provision is the longest until something is provisioned: 5 min.
	Provision time.Duration
	// Delete is the longest until something is gone: 5 min.
	Delete time.Duration
	// Quiet is how long the kit watches where nothing is to happen: 10 s.
	Quiet time.Duration
	// Poll is the longest pause between two looks: 500 ms.
	Poll time.Duration
}

func (s *Subject) complete() {
	l := &s.Limits
	l.Provision, l.Delete = cmp.Or(l.Provision, 5*time.Minute), cmp.Or(l.Delete, 5*time.Minute)
	l.Quiet, l.Poll = cmp.Or(l.Quiet, 10*time.Second), cmp.Or(l.Poll, 500*time.Millisecond)
}

// Scheme has the kinds that the kit handles by type; the provider's it handles
// without.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

type need func(*Subject) string

func lacking(message string, is func(*Subject) bool) need {
	return func(s *Subject) string {
		if is(s) {
			return message
		}
		return ""
	}
}

var (
	needsInventory = lacking("only what exists outside shows it: give --inventory-command",
		func(s *Subject) bool { return s.Inventory == nil })
	needsRestart = lacking("the manager has to be killed: give --restart-command",
		func(s *Subject) bool { return s.Restart == nil })
	needsTemplate = lacking("the file has no template of machines",
		func(s *Subject) bool { return s.Objects.MachineTemplate == nil })
	needsChangedTemplate = lacking("the file has no second template of machines that differs from the first",
		func(s *Subject) bool { return s.Objects.ChangedTemplate == nil })
	needsFailing = lacking("the file has no machine that cannot be made: annotate one with "+RoleAnnotation+": failing-machine",
		func(s *Subject) bool { return s.Objects.FailingMachine == nil })
	needsFilter = lacking("the manager has to run with --watch-filter: give its value as --watch-filter",
		func(s *Subject) bool { return s.WatchFilter == "" })
	needsRelease = lacking("give the folder of a release with --release",
		func(s *Subject) bool { return s.Release == nil })
	needsPool = lacking("the file has no infrastructure of a machine pool",
		func(s *Subject) bool { return s.Objects.Pool == nil })
	needsNoCore = lacking("core does nothing for a machine pool before it reaches the API server of the pool's cluster, and there is none",
		func(s *Subject) bool { return s.CoreRuns })
)
