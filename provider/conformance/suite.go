// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/arguments"
)

// Subject is the provider under test and what the suite may do with it.
type Subject struct {
	// Provider is under test, and this check's alone: the suite calls its
	// Teardown.
	Provider provider.Provider
	// Spec is what every instance is made with; the suite adds tags.
	Spec provider.InstanceTypeSpec
	// UserData is what every instance is handed; by default an empty
	// #cloud-config.
	UserData string
	// Tags go on every instance, besides those the suite needs, so that
	// whoever pays can tell where it came from.
	Tags map[string]string
	// Reopen makes another provider for the same cloud, as a new process
	// would; the suite calls its Teardown too. Checks that need it are skipped
	// without.
	Reopen func() provider.Provider
	// Open, if any, is Reopen with a context, which may have ended. Checks that need
	// it are skipped without.
	Open func(context.Context) (provider.Provider, error)
	// NoAccess open providers of the same configuration that the cloud does
	// not let in, by the reason: a credential that was revoked, an account that
	// there is not. One that cannot even be opened is nil. Checks that need
	// them are skipped without. The suite calls their Teardown.
	NoAccess map[string]func() provider.Provider
	// Leaks, if any, tells from outside the contract what exists though the
	// check has deleted everything it made: processes, files, disks. The
	// check fails unless it returns nothing within Limits.Settle.
	Leaks func() ([]string, error)
	// ReadUserData, if any, returns the user-data that an instance was handed,
	// as its guest would read it. Without it the suite sees only whether
	// user-data is taken.
	ReadUserData func(ctx context.Context, instanceID string) (string, error)
	// NoLoadBalancers, if not empty, is why load balancers are not checked
	// although the provider has the power, such as for want of an image.
	NoLoadBalancers string
	// NoDisks, if not empty, is why disks and snapshots are not checked although the
	// provider has the power.
	NoDisks string
	// Disk is what every disk is made with: its type, its zone, which is that of the
	// instances, and the least size that the cloud has, which is 1 GiB by default.
	Disk provider.DiskSpec
	// OtherZone, if any, is one in which disks can be and no instance is.
	OtherZone string
	// DisksPerInstance, if any, is how many disks the suite attaches to one instance,
	// which can then have no more.
	DisksPerInstance int
	// WriteDisk and ReadDisk, if any, write and read the first bytes of a disk that is not
	// attached. Without them the suite does not see what copies hold.
	WriteDisk func(diskID string, data []byte) error
	ReadDisk  func(diskID string, bytes int) ([]byte, error)
	// Foreign, if any, makes a disk with these tags that CreateDisk does not make.
	Foreign func(tags map[string]string) (Foreign, error)
	// Unchecked lets calls reach the providers whose arguments no provider can take.
	// Without it the suite refuses them as hosts do, by package kit/arguments.
	Unchecked bool
	// Parallel is how many instances the suite may have at a time; 8 by
	// default, 3 when Slow, at least 2.
	Parallel int
	// Slow says that creating an instance takes more than a few seconds. It
	// makes the default limits longer.
	Slow bool
	// Limits replace the default limits where not zero.
	Limits Limits
}

// Foreign is a disk of somebody else's and a snapshot of it, which may be missing.
type Foreign struct {
	DiskID, SnapshotID string
	// Remove removes both.
	Remove func() error
}

// checked returns p, unless it is nil, as the suite calls it.
func (s *Subject) checked(p provider.Provider) provider.Provider {
	if p == nil || s.Unchecked {
		return p
	}
	return arguments.Checked(p)
}

// Limits are how long the suite waits.
type Limits struct {
	// Call is the longest that one call may take: 1 min, 10 min when Slow.
	Call time.Duration
	// Soon is the longest that a call may take once its context has ended:
	// 10 s, 1 min when Slow.
	Soon time.Duration
	// Settle is the longest until lists and look-ups show what was done:
	// 30 s, 5 min when Slow.
	Settle time.Duration
}

func (s *Subject) complete() {
	limits, parallel := Limits{time.Minute, 10 * time.Second, 30 * time.Second}, 8
	if s.Slow {
		limits, parallel = Limits{10 * time.Minute, time.Minute, 5 * time.Minute}, 3
	}
	if s.UserData == "" {
		s.UserData = "#cloud-config\nwrite_files: []\n"
	}
	if s.Parallel == 0 {
		s.Parallel = parallel
	}
	s.Parallel = max(s.Parallel, 2)
	if s.Disk.Bytes == 0 {
		s.Disk.Bytes = 1 << 30
	}
	for _, l := range []struct{ given, standard *time.Duration }{
		{&s.Limits.Call, &limits.Call}, {&s.Limits.Soon, &limits.Soon}, {&s.Limits.Settle, &limits.Settle},
	} {
		if *l.given == 0 {
			*l.given = *l.standard
		}
	}
}

// T is what a check needs of a test. *testing.T is one.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	// Fatalf and Skipf end the check: they do not return.
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
}

// Check is one promise of the contract.
type Check struct {
	// Name is lower case with dashes and never changes.
	Name string
	// Contract is the sentence it proves.
	Contract string

	needs []need
	run   func(*run)
}

// Run runs the check on a subject that open makes for it alone, and then
// deletes whatever the check made.
func (c Check) Run(t T, open func(T) Subject) {
	t.Helper()
	r := newRun(t, open(t))
	for _, need := range c.needs {
		if missing := need(r.subject); missing != "" {
			t.Skipf("not checked: %s", missing)
		}
	}
	c.run(r)
}

// Run runs every check as a subtest. open is called once for each.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	for _, check := range Checks() {
		t.Run(check.Name, func(t *testing.T) {
			check.Run(t, func(T) Subject { return open(t) })
		})
	}
}

// need returns what the subject lacks, or nothing.
type need func(Subject) string

func needs[Power any](name string) need {
	return func(s Subject) string {
		if _, ok := provider.As[Power](s.Provider); ok {
			return ""
		}
		return "the provider does not implement provider." + name
	}
}

var (
	needsLister  = needs[provider.Lister]("Lister")
	needsGetter  = needs[provider.Getter]("Getter")
	needsConsole = needs[provider.ConsoleReader]("ConsoleReader")
	needsPower   = needs[provider.PowerController]("PowerController")
	needsTypes   = needs[provider.InstanceTypeLister]("InstanceTypeLister")
	needsAddress = needs[provider.NodeAddresser]("NodeAddresser")

	needsContextVerifier = needs[provider.ContextVerifier]("ContextVerifier")
	needsContextCloser   = needs[provider.ContextCloser]("ContextCloser")
)

func needsBalancer(s Subject) string {
	if s.NoLoadBalancers != "" {
		return s.NoLoadBalancers
	}
	return needs[provider.LoadBalancerController]("LoadBalancerController")(s)
}

func needsDisks(s Subject) string {
	if s.NoDisks != "" {
		return s.NoDisks
	}
	return needs[provider.DiskController]("DiskController")(s)
}

func needsSnapshots(s Subject) string {
	if missing := needsDisks(s); missing != "" {
		return missing
	}
	return needs[provider.DiskSnapshotter]("DiskSnapshotter")(s)
}

func needsForeign(s Subject) string {
	if s.Foreign == nil {
		return "Subject.Foreign is not set"
	}
	return ""
}

func needsContent(s Subject) string {
	if s.WriteDisk == nil || s.ReadDisk == nil {
		return "Subject.WriteDisk or Subject.ReadDisk is not set"
	}
	return ""
}

func needsDiskLimit(s Subject) string {
	if s.DisksPerInstance == 0 {
		return "Subject.DisksPerInstance is not set"
	}
	return ""
}

func needsOtherZone(s Subject) string {
	if s.OtherZone == "" {
		return "Subject.OtherZone is not set"
	}
	return ""
}

func needsUserData(s Subject) string {
	if s.ReadUserData == nil {
		return "Subject.ReadUserData is not set"
	}
	return ""
}

func needsNoAccess(s Subject) string {
	if len(s.NoAccess) == 0 {
		return "Subject.NoAccess is not set"
	}
	return ""
}

func needsOpen(s Subject) string {
	if s.Open == nil {
		return "Subject.Open is not set"
	}
	return ""
}

func needsReopen(s Subject) string {
	if s.Reopen == nil {
		return "Subject.Reopen is not set"
	}
	return ""
}
