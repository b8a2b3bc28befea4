// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/provider"
	_ "github.com/outrigger/outrigger/providers/alibabacloud"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

// programVariable makes this test's program the manager, which can be killed.
const programVariable = "OUTRIGGER_TEST_MANAGER"

func init() {
	if os.Getenv(programVariable) != "" {
		os.Exit(Main())
	}
}

// sky is a simulated Alibaba Cloud beside the lab's cluster.
type sky struct {
	*lab
	cloud *sim.Cloud
	env   []string
}

func newSky(l *lab) *sky {
	c := sim.New(l.T, sim.Options{Lag: time.Nanosecond})
	return &sky{lab: l, cloud: c, env: c.Env(l.T)}
}

// manager starts the program, until kill or the end of the test. It is a process
// of its own also since the library's controller of Services has a data race at
// its start (serviceCache), which is not what is tested.
func (s *sky) manager(args ...string) (kill func()) {
	s.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--cloud-provider=alibabacloud", "--kubeconfig=" + s.user.Kubeconfig, "--secure-port=0",
		"--leader-elect=false", "--instance-tags=outrigger-cluster=c1", "--load-balancer-left-after=3s"}, args...)...)
	cmd.Env = append(slices.Concat(os.Environ(), s.env), programVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // by the signal
		if s.Failed() {
			s.Log(said.String())
		}
	})
	s.Cleanup(kill)
	return kill
}

// worker makes an instance and its Node, which is initialized and Ready.
func (s *sky) worker(name, format string, n int) (id string) {
	s.Helper()
	id = s.cloud.AddForeign(map[string]string{"pool": "workers"})
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{ProviderID: fmt.Sprintf(format, id)}}
	if _, err := s.client.CoreV1().Nodes().Create(s.Context(), node, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	patch := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"10.9.0.%d"}]}}`, n)
	if _, err := s.client.CoreV1().Nodes().Patch(s.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		s.Fatal(err)
	}
	s.ready(name, v1.ConditionTrue)
	return id
}

// label puts a label on a Node, or takes it away without a value.
func (s *sky) label(node, name string, value any) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{name: value}}})
	if err == nil {
		_, err = s.client.CoreV1().Nodes().Patch(s.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *sky) service(name string, annotations map[string]string) {
	s.Helper()
	_, err := s.client.CoreV1().Services("default").Create(s.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{
			{Name: "web", Port: 80}, {Name: "dns", Port: 53, Protocol: v1.ProtocolUDP},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

// balancersOf returns the load balancers of a Service.
func (s *sky) balancersOf(service string) []sim.Balancer {
	return slices.DeleteFunc(s.cloud.Balancers(), func(b sim.Balancer) bool { return b.Tags["outrigger-service"] != "default."+service })
}

// wantBalancer waits until the Service has the address of its one load balancer,
// which runs and leads to the instances.
func (s *sky) wantBalancer(service string, ids ...string) {
	s.Helper()
	slices.Sort(ids)
	var last any
	s.until("the load balancer of "+service, func() bool {
		got, err := s.client.CoreV1().Services("default").Get(s.Context(), service, metav1.GetOptions{})
		if err != nil {
			s.Fatal(err)
		}
		there := s.balancersOf(service)
		last = there
		if len(there) > 1 {
			s.Fatalf("%d load balancers of %s: %+v", len(there), service, there)
		}
		ingress := got.Status.LoadBalancer.Ingress
		return len(there) == 1 && len(ingress) == 1 && ingress[0].IP == there[0].Address && slices.Equal(there[0].Servers, ids) &&
			len(there[0].Listeners) == 2 && !strings.Contains(strings.Join(there[0].Listeners, ","), "stopped")
	})
	s.Logf("%+v", last)
}

// balancesAtAlibaba is Services over Alibaba Cloud's API, with a manager that is
// killed.
func balancesAtAlibaba(l *lab) {
	s := newSky(l)
	c := s.cloud
	foreign := c.AddForeignBalancer(map[string]string{provider.TagCluster: "c1", "outrigger-service": "default.front"})
	l.Cleanup(func() {
		for _, violation := range c.Violations() {
			l.Error(violation)
		}
	})
	a, b := s.worker("ecs-a", "alicloud://"+sim.Region+".%s", 1), s.worker("ecs-b", sim.Region+".%s", 2)
	kill := s.manager()

	const exclude = "node.kubernetes.io/exclude-from-external-load-balancers"
	s.service("web", nil)
	s.wantBalancer("web", a, b)
	s.label("ecs-b", exclude, "")
	s.wantBalancer("web", a)
	s.label("ecs-b", exclude, nil)
	s.wantBalancer("web", a, b)
	if err := l.client.CoreV1().Nodes().Delete(l.Context(), "ecs-a", metav1.DeleteOptions{}); err != nil {
		l.Fatal(err)
	}
	s.wantBalancer("web", b)

	const addressType = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type"
	s.service("wrong", map[string]string{addressType: "inside"})
	l.until("the Event names the annotation", func() bool { return s.told("wrong", addressType) })
	if made := s.balancersOf("wrong"); len(made) > 0 {
		l.Errorf("made all the same: %+v", made)
	}
	s.remove("wrong")

	c.Script(cloudsim.Unreachable("slb:CreateLoadBalancerUDPListener").Repeated(1 << 30))
	s.service("half", nil)
	l.until("it is partly created", func() bool {
		half := s.balancersOf("half")
		return len(half) == 1 && len(half[0].Listeners) > 0
	})
	kill()
	c.ClearFaults()
	first := s.balancersOf("half")[0].ID
	kill = s.manager()
	s.wantBalancer("half", b)
	if now := s.balancersOf("half")[0].ID; now != first {
		l.Errorf("%s was made again as %s", first, now)
	}

	kill()
	s.removeWithoutFinalizers("half")
	s.manager()
	l.until("what was left is deleted", func() bool { return len(s.balancersOf("half")) == 0 })
	s.remove("web")
	if left := c.Balancers(); len(left) != 1 || left[0].ID != foreign {
		l.Errorf("left: %+v", left)
	}
}

// told reports whether an Event of the Service has the text.
func (s *sky) told(service, text string) bool {
	s.Helper()
	list, err := s.client.CoreV1().Events("default").List(s.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + service + ",reason=SyncLoadBalancerFailed"})
	if err != nil {
		s.Fatal(err)
	}
	return slices.ContainsFunc(list.Items, func(e v1.Event) bool { return strings.Contains(e.Message, text) })
}

// remove deletes a Service and waits until it and its load balancer are gone.
func (s *sky) remove(service string) {
	s.Helper()
	services := s.client.CoreV1().Services("default")
	if err := services.Delete(s.Context(), service, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.until(service+" is gone", func() bool {
		_, err := services.Get(s.Context(), service, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if left := slices.DeleteFunc(s.balancersOf(service), func(b sim.Balancer) bool { return b.Tags["outrigger-load-balancer"] == "" }); len(left) > 0 {
		s.Errorf("the Service is gone before its load balancer: %+v", left)
	}
}

// removeWithoutFinalizers is what somebody does who loses patience.
func (s *sky) removeWithoutFinalizers(service string) {
	s.Helper()
	services := s.client.CoreV1().Services("default")
	if _, err := services.Patch(s.Context(), service, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	if err := services.Delete(s.Context(), service, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}
