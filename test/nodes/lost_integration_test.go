// SPDX-License-Identifier: Apache-2.0

//go:build integration

package nodes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/internal/nodes/ccm"
	"github.com/outrigger/outrigger/internal/nodes/operator/guard"
)

// survivesEmptiness: the second Node is not Ready any more, and the daemon knows no
// machine: not its own, and not those that live.
func survivesEmptiness(l *lab) {
	var undefine []string
	for name, i := range l.instances {
		l.domains[name] = l.daemon.Virsh(l, "dumpxml", "--inactive", i.ID)
		undefine = append(undefine, "undefine "+i.ID)
	}
	l.daemon.Virsh(l, strings.Join(undefine, "; "))
	before := l.names()
	l.second.Kubelet.Stop(syscall.SIGTERM)
	l.event("node2", ccm.HeldEmpty)
	l.heldFor(ccm.HeldEmpty)
	l.sameAs(before)
}

func survivesSilence(l *lab) {
	before := l.names()
	l.daemon.Kill(l)
	l.event("node2", ccm.HeldNoList, "connection refused")
	l.heldFor(ccm.HeldNoList)
	l.sameAs(before)
	l.daemon.Restart(l)
}

// removes has the inventory again, except for the instance of the Node that is
// lost.
func removes(l *lab) {
	for name, xml := range l.domains {
		if name != "node2" {
			l.define(name, xml)
		}
	}
	l.gone("node2")
	l.event("node2", "DeletingNode")
	if want := 1 + crowd + 1 + bystanders; len(l.names()) != want {
		l.Errorf("there are %v, want %d Nodes", l.names(), want)
	}
}

// define gives the daemon a machine back.
func (l *lab) define(name, xml string) {
	l.Helper()
	path := filepath.Join(l.TempDir(), name+".xml")
	l.must(os.WriteFile(path, []byte(xml), 0o600))
	l.daemon.Virsh(l, "define", path)
}

// looks is how often an instance has to be missed before its Node is deleted, if
// the inventory proves it: they are five seconds apart, and two are enough.
const looks = 2

// heldFor waits until the manager has looked so often that a Node which it
// deletes were gone.
func (l *lab) heldFor(reason string) {
	l.Helper()
	line := fmt.Sprintf("outrigger_ccm_node_deletions_held_total{reason=%q} ", reason)
	l.until("more looks at Nodes that are lost", func() error {
		text, err := l.scrape(managerPort)
		if err != nil {
			return err
		}
		for _, found := range grep(text, line) {
			n, err := strconv.ParseFloat(strings.TrimPrefix(found, line), 64)
			if err == nil && n >= looks {
				return nil
			}
		}
		return fmt.Errorf("metrics: %q", grep(text, "outrigger_ccm_node_deletions_held_total"))
	})
}

// names are those of all Nodes.
func (l *lab) names() []string {
	l.Helper()
	list, err := l.client.CoreV1().Nodes().List(l.Context(), metav1.ListOptions{})
	l.must(err)
	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	return names
}

func (l *lab) sameAs(before []string) {
	l.Helper()
	if now := l.names(); !slices.Equal(now, before) {
		l.Errorf("Nodes %v; there were %v", now, before)
	}
}

// guards loses a crowd of Nodes at once. One of the three that may go in a window
// has gone before.
func guards(l *lab) {
	for n := range crowd {
		l.must(l.cloud.DeleteInstance(l.Context(), l.instances[plainName(n)].ID))
	}
	for n := range crowd {
		l.ready(plainName(n), corev1.ConditionFalse)
	}
	const most = 2
	l.until("the manager deletes what it may", func() error {
		if left := l.crowded(); len(left) > crowd-most {
			return fmt.Errorf("there are %v", left)
		}
		return nil
	})
	left := l.crowded()
	for _, name := range left {
		l.event(name, "DeletingNodeFailed", "is guarded", guard.Annotation+"="+guard.Allow)
		l.event(name, "NodeDeletionGuarded", "3 Nodes were given up in the last 10m0s")
	}
	l.measured(fmt.Sprintf("outrigger_node_deletions_guarded %d\n", crowd-most))
	if now := l.crowded(); len(now) != crowd-most {
		l.Fatalf("of %d Nodes there are %v, want %d", crowd, now, crowd-most)
	}
	l.Logf("%d of %d stay", len(left), crowd)
	l.api.Kubectl(l, "annotate", "node", left[0], guard.Annotation+"="+guard.Allow)
	l.gone(left[0])
	if now := l.crowded(); !slices.Equal(now, left[1:]) {
		l.Errorf("there are %v, want %v", now, left[1:])
	}
}

// crowded are the Nodes of the crowd that there are.
func (l *lab) crowded() []string {
	l.Helper()
	return slices.DeleteFunc(l.names(), func(name string) bool { return !strings.HasPrefix(name, plainName(0)[:len("plain-")]) })
}
