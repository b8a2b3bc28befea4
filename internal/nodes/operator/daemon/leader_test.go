// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/outrigger/outrigger/internal/commandline"
)

func TestFlags(t *testing.T) {
	for args, c := range map[string]struct {
		topology configv1.TopologyMode
		want     [3]time.Duration
		err      string
	}{
		"":                                    {"HighlyAvailable", [3]time.Duration{137, 107, 26}, ""},
		" ":                                   {configv1.SingleReplicaTopologyMode, [3]time.Duration{270, 240, 60}, ""},
		"--leader-elect-lease-duration=200s":  {configv1.SingleReplicaTopologyMode, [3]time.Duration{200, 107, 26}, ""},
		"--leader-elect-retry-period=10s":     {"", [3]time.Duration{137, 107, 10}, ""},
		"--leader-elect-renew-deadline=137s":  {"", [3]time.Duration{}, "must exceed"},
		"--leader-elect-retry-period=-1s":     {"", [3]time.Duration{}, "want 0 or more"},
		"--leader-elect-resource-lock=events": {"", [3]time.Duration{}, `"events": want leases`},
		"--leader-elect-resource-name=":       {"", [3]time.Duration{}, "want a lease's name"},
	} {
		o := Election{Name: "lease", Namespace: "ns"}
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		wrong := commandline.Settings(f, &o)
		if err := f.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(wrong(), o.Validate()); c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v; want %q", args, err, c.err)
		}
		if c.err != "" {
			continue
		}
		var m manager.Options
		o.Apply(&m, c.topology)
		if got := [3]time.Duration{*m.LeaseDuration / time.Second, *m.RenewDeadline / time.Second, *m.RetryPeriod / time.Second}; got != c.want {
			t.Errorf("%s: %v; want %v", args, got, c.want)
		}
		if !m.LeaderElection || m.LeaderElectionID != "lease" || m.LeaderElectionNamespace != "ns" {
			t.Errorf("%s: %+v", args, m)
		}
	}
}
