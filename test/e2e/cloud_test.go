// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cluster"
)

// cloud is what the suite has to know of a provider. One that needs more than
// the default says so in a file of its own.
type cloud struct {
	// overlay is the folder in deploy/overlays; the provider's name by default.
	overlay string
	// daemons are images, beside those of every overlay, that it needs.
	daemons []string
	// prepare makes the cloud in a cluster of the suite's own, before anything
	// is installed, and returns keys for peer-pods-cm. Without it the provider
	// is tested with -kubeconfig only.
	prepare func(t *testing.T, own *ownCluster) map[string]string
	// instances returns the ids of the instances that the cloud has for this
	// cluster. The default believes the PeerPods.
	instances func(t *testing.T, s *suite) []string
	// machineType is a type that a pod can ask for, with what its VM has then;
	// cases that need it are skipped without one.
	machineType machineType
	// csi are the variables with which the CSI driver reaches the provider in a cluster of the
	// suite's own, beside those of prepare; none where it has no disks.
	csi []string
	// image is the id of another image than the default one, with which a VM
	// boots as well.
	image string
}

type machineType struct {
	name      string
	cpus, mib int
}

// ownCluster is one that the suite has made.
type ownCluster struct {
	control *cluster.ControlPlane
	node    *cluster.Node
	csi     sync.Once
	driver  *cluster.CSI // once csi is done
	policy  sync.Once    // see policyImage
	tpm     sync.Once    // see tpmImage
}

var clouds = map[string]cloud{}

// cloudOf returns what is known of a provider, and defaults for the rest.
func cloudOf(name string) cloud {
	c := clouds[name]
	c.overlay = cmp.Or(c.overlay, name)
	if c.instances == nil {
		c.instances = claimed
	}
	return c
}

// claimed are the instances that PeerPods name.
func claimed(t *testing.T, s *suite) []string {
	t.Helper()
	return strings.Fields(s.Kubectl(t, "get", "peerpods", "-A", "-o", "jsonpath={.items[*].spec.instanceID}"))
}

// instanceOf returns the instance of a pod that is ready, as its PeerPod names
// it, and wants the cloud to have it.
func (s *suite) instanceOf(t *testing.T, pod string) string {
	t.Helper()
	ready := s.until(t, "peerpods", "{.spec.podName} {.status.phase} {.spec.instanceID}", func(v string) bool {
		return strings.HasPrefix(v, pod+" Ready ")
	})
	id := strings.Fields(ready)[2]
	if all := s.cloud.instances(t, s); !slices.Contains(all, id) {
		t.Errorf("the cloud does not have instance %s, but %v", id, all)
	}
	return id
}

// gone waits until the cloud does not show these instances, and no PeerPod
// names them. Clouds have no event for it.
func (s *suite) gone(t *testing.T, ids ...string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		left := map[string]bool{}
		for _, id := range append(s.cloud.instances(t, s), claimed(t, s)...) {
			if len(ids) == 0 || slices.Contains(ids, id) {
				left[id] = true
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("instances are left %s after their pods: %v", patience, slices.Sorted(maps.Keys(left)))
			return
		}
	}
}

// goneAll is gone for whatever this run made: in a cluster of the suite's own
// that is everything.
func (s *suite) goneAll(t *testing.T) {
	t.Helper()
	if s.own != nil {
		s.gone(t)
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		left := s.kubectl(t, "get", "pods,peerpods", "-o", "name")
		if left == "" {
			return
		}
		if time.Now().After(end) {
			t.Errorf("left in namespace %s: %s", s.namespace, left)
			return
		}
	}
}
