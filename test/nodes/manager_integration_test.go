// SPDX-License-Identifier: Apache-2.0

//go:build integration

package nodes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/outrigger/outrigger/internal/nodes/operator/watchdog"
)

// rolls changes a setting: whoever comes afterwards has what it says.
func rolls(l *lab) {
	before := l.pod()
	l.configure(l.uri(), "there")
	l.instance("late")
	l.until("another pod", func() error {
		if l.pod() == before {
			return fmt.Errorf("it is still %s", before)
		}
		return nil
	})
	l.add("late", "")
	l.until("the Node has the label", func() error {
		if site := l.get("late").Labels[siteLabel]; site != "there" {
			return fmt.Errorf("it is %q", site)
		}
		return nil
	})
}

// pod is the manager's; empty where there is none.
func (l *lab) pod() string {
	l.Helper()
	return l.api.Kubectl(l, "-n", namespace, "get", "pods", "-l", "k8s-app="+manager, "-o", "jsonpath={.items[*].metadata.name}")
}

// crashes: the configuration has the right form, and the manager cannot use it.
func crashes(l *lab) {
	l.configure("nowhere://", here)
	l.named("waiting", watchdog.PodsNotRunning, "LIBVIRT_URI", "nowhere")
	l.configure(l.uri(), here)
	l.works()
}

// works waits until the manager speaks again.
func (l *lab) works() {
	l.Helper()
	l.named("waiting", watchdog.CloudError, "InstanceNotFound")
}

func lacksImage(l *lab) {
	l.apply(l.registry.Host + "/outrigger/nothing:1")
	l.named("waiting", watchdog.PodsNotRunning, "cannot be pulled", "outrigger/nothing:1")
	l.apply(l.images["cloud-controller-manager"])
	l.works()
}

// hangs stops the process. A lease lasts for minutes, and twice that has to pass:
// this one gets shorter, which nobody corrects while its holder hangs.
func hangs(l *lab) {
	l.until("the manager leads", func() error {
		holder := l.api.Kubectl(l, "-n", namespace, "get", "lease", "cloud-controller-manager", "-o", "jsonpath={.spec.holderIdentity}")
		return contains(holder, "node1_")
	})
	pid := l.process()
	l.must(syscall.Kill(pid, syscall.SIGSTOP))
	defer syscall.Kill(pid, syscall.SIGCONT) // it renews its lease at its next turn, half a minute later
	l.api.Kubectl(l, "-n", namespace, "patch", "lease", "cloud-controller-manager", "--type=merge", "-p", `{"spec":{"leaseDurationSeconds":1}}`)
	l.named("waiting", watchdog.LeaseStale, "ccm-system/cloud-controller-manager", "of node1_", "last renewed")
}

// process is the manager's.
func (l *lab) process() int {
	l.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	l.must(err)
	var found []int
	for _, path := range paths {
		line, _ := os.ReadFile(path)
		if bytes.HasPrefix(line, []byte("/usr/local/bin/cloud-controller-manager\x00")) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			l.must(err)
			found = append(found, pid)
		}
	}
	if len(found) != 1 {
		l.Fatalf("processes %v of the manager, want one", found)
	}
	return found[0]
}

// leaves: what was made for the manager goes with it.
func leaves(l *lab) {
	l.api.Kubectl(l, "delete", "ccm", "main", "--timeout=3m")
	l.api.Kubectl(l, "-n", namespace, "delete", "configmap/my-cloud", "secret/libvirt-client")
	l.returns(*l.idle)
}

func uninstalls(l *lab) {
	l.api.Kubectl(l, "delete", "-k", *l.installed, "--timeout=3m")
	l.returns(*l.bare)
}

// passing are kinds whose objects come and go by themselves, or are the Nodes'.
var passing = []string{"events", "events.events.k8s.io", "nodes", "leases.coordination.k8s.io", "componentstatuses", "csinodes.storage.k8s.io"}

// objects are the names of all that the cluster has. It fails while kinds come or
// go.
func (l *lab) objects() ([]string, error) {
	kinds, err := l.api.TryKubectl("api-resources", "--verbs=list", "-o", "name")
	if err != nil {
		return nil, err
	}
	lasting := slices.DeleteFunc(strings.Fields(kinds), func(kind string) bool { return slices.Contains(passing, kind) })
	text, err := l.api.TryKubectl("get", strings.Join(lasting, ","), "-A", "-o", `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
	all := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(all)
	return all, err
}

// remember notes what there is.
func (l *lab) remember(into *[]string) {
	l.Helper()
	all, err := l.objects()
	l.must(err)
	*into = all
}

// shared is the account with which Kubernetes' own controllers of Nodes work, too:
// the manager makes it where they do not, and nobody else's is taken away.
const shared = "ServiceAccount kube-system/node-controller"

// returns waits until nothing is there that was not.
func (l *lab) returns(before []string) {
	l.Helper()
	l.until("nothing is left", func() error {
		more, err := l.objects()
		more = slices.DeleteFunc(more, func(o string) bool { return o == shared || slices.Contains(before, o) })
		if err == nil && len(more) > 0 {
			err = fmt.Errorf("left are %q", more)
		}
		return err
	})
}
