// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

var (
	providerName = flag.String("provider", cmp.Or(os.Getenv("CLOUD_PROVIDER"), "qemu"), "`name` of the provider")
	kubeconfig   = flag.String("kubeconfig", "", "`file` of a cluster where Outrigger is installed")
	kubectl      = flag.String("kubectl", "", "`path` of kubectl; the one on PATH by default")
	registry     = flag.String("registry", os.Getenv("E2E_REGISTRY"), "`host/folder` that images are pushed to, with the credentials of docker login, and pulled from by nodes and VMs")
	runtimeClass = flag.String("runtimeclass", "kata-remote", "`name` of the RuntimeClass")
	outsideURL   = flag.String("outside", "http://example.com/", "`URL` outside of the cluster that pods reach")
	maxVMs       = flag.Int("vms", 4, "how many VMs may run at a time")
)

// patience bounds each wait; it is more than ten times what the slowest, a boot
// with firmware, takes on two idle processors without KVM.
const patience = 10 * time.Minute

// startOwn makes a cluster of the suite's own; nil without the build tag
// integration.
var startOwn func(t *testing.T, c cloud) *suite

func TestMain(m *testing.M) {
	flag.Parse()
	parallel := true
	flag.Visit(func(f *flag.Flag) { parallel = parallel && f.Name != "test.parallel" })
	if parallel {
		// Cases mostly wait; their VMs are counted.
		flag.Set("test.parallel", fmt.Sprint(*maxVMs))
	}
	if *kubeconfig == "" && startOwn != nil {
		testns.Main(m)
	}
	os.Exit(m.Run())
}

// suite is what all cases share: the cluster, as administrator.
type suite struct {
	*cluster.User
	cloud cloud
	// namespace is where all pods are.
	namespace string
	images    images
	// outside is a URL outside of the cluster.
	outside string
	// own is set in a cluster of the suite's own.
	own *ownCluster
	// suite is the test of all cases.
	suite *testing.T

	turn  sync.Mutex
	slots chan struct{}
}

// reserve waits until n more VMs may run.
func (s *suite) reserve(t *testing.T, n int) {
	t.Helper()
	n = min(n, cap(s.slots))
	// One after the other, or two would wait for each other's rest.
	s.turn.Lock()
	defer s.turn.Unlock()
	for range n {
		s.slots <- struct{}{}
	}
	t.Cleanup(func() {
		for range n {
			<-s.slots
		}
	})
}

// TestE2E plays all cases; one alone by -run TestE2E/NAME.
func TestE2E(t *testing.T) {
	s := open(t)
	s.suite = t
	s.begin(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.variant && s.own != nil {
				tier.OnlyAll(t)
			}
			if !c.alone {
				t.Parallel()
			}
			s.reserve(t, cmp.Or(c.vms, *maxVMs))
			began := time.Now()
			c.play(t, s)
			t.Logf("took %s without its clean-up", time.Since(began).Round(100*time.Millisecond))
		})
	}
}

func open(t *testing.T) *suite {
	t.Helper()
	c := cloudOf(*providerName)
	if *kubeconfig != "" {
		return given(t, c)
	}
	if startOwn == nil {
		t.Skip("no cluster: run `go test ./test/e2e -provider NAME -kubeconfig FILE -registry HOST/FOLDER`, or as root with -tags integration for one of its own")
	}
	return startOwn(t, c)
}

// given is a cluster that somebody else made.
func given(t *testing.T, c cloud) *suite {
	t.Helper()
	if *registry == "" {
		t.Fatal("-registry is missing: a HOST/FOLDER that you may push images to, and that nodes and VMs pull from")
	}
	s := &suite{User: cluster.Foreign(*kubeconfig, *kubectl), cloud: c, outside: *outsideURL}
	s.images = pushAll(t, *registry)
	s.images.private = privateImage()
	return s
}

// begin makes the namespace and says what pods run with.
func (s *suite) begin(t *testing.T) {
	t.Helper()
	s.slots = make(chan struct{}, *maxVMs)
	s.namespace = fmt.Sprintf("outrigger-e2e-%d", os.Getpid())
	s.Kubectl(t, "create", "namespace", s.namespace)
	t.Cleanup(func() { s.end(t) })
	s.kubectl(t, "wait", "--for=create", "serviceaccount/default", s.timeout())
	t.Logf("provider %s, nodes %s", *providerName, s.Kubectl(t, "get", "nodes", "-o",
		"jsonpath={range .items[*]}{.metadata.name} ({.status.nodeInfo.containerRuntimeVersion}) {end}"))
}

// end removes the namespace, and wants nothing to be left of any pod.
func (s *suite) end(t *testing.T) {
	t.Helper()
	s.goneAll(t)
	s.Kubectl(t, "delete", "namespace", s.namespace, s.timeout())
}

// timeout is kubectl's flag.
func (s *suite) timeout() string { return "--timeout=" + patience.String() }

// kubectl runs it in the suite's namespace.
func (s *suite) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return s.Kubectl(t, s.in(args)...)
}

func (s *suite) in(args []string) []string { return append([]string{"-n", s.namespace}, args...) }

// jsonpath returns a value of an object.
func (s *suite) jsonpath(t *testing.T, object, path string) string {
	t.Helper()
	return s.kubectl(t, "get", object, "-o", "jsonpath="+path)
}

// exec runs a command in the first container of a pod.
func (s *suite) exec(t *testing.T, pod string, command ...string) string {
	t.Helper()
	return s.kubectl(t, append([]string{"exec", pod, "--"}, command...)...)
}

// want looks for a part of what came.
func want(t *testing.T, what, got, part string) {
	t.Helper()
	if !strings.Contains(got, part) {
		t.Errorf("%s: %q; want %q in it", what, clip(got), part)
	}
}

func clip(s string) string {
	if len(s) > 2000 {
		return s[:1000] + " ... " + s[len(s)-1000:]
	}
	return s
}
