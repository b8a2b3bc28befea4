// SPDX-License-Identifier: Apache-2.0

//go:build integration

package recovery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/tier"
)

// What becomes of a pod in a round.
const (
	livesOn     = iota // until it is deleted, some time after it was ready
	endsItself         // its container ends before it is deleted
	endsEarly          // deleted at any moment of its making
	disappears         // the same, without grace: its object is gone at once
	lives              // how many there are
	atTheSame   = 5    // rounds at the same time
	foreignName = "foreign"
)

// fromEnv is a number that the environment may set.
func fromEnv(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, text, err)
	}
	return n
}

// TestKilledAtRandom kills the adaptor, the controller and the API server with
// SIGKILL, at random, while pods are made and deleted, and then looks for what
// is left and counts in the cloud's ledger.
//
// OUTRIGGER_SEED repeats a run's choices.
func TestKilledAtRandom(t *testing.T) {
	rounds, seed := tier.Rounds(t, 8, 50), fromEnv(t, "OUTRIGGER_SEED", uint64(time.Now().UnixNano()))
	t.Logf("%d rounds; to make the same choices again: OUTRIGGER_SEED=%d", rounds, seed)
	// The grace must outlast the adaptor's longest pause between two tries to
	// write a PeerPod, 15 s.
	s := newSite(t, cluster.OutriggerOptions{
		// An adaptor that is killed before it answers StartVM leaves a VM without
		// a client.
		Settings:   map[string]string{"ORPHAN_TIMEOUT": "20s"},
		Controller: []string{"-sweep-period=1s", "-sweep-grace=20s", "-settle-after=5s", "-adopt-after=2s"},
	})
	foreign := s.foreignInstance(t)
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.rounds(rounds, seed)
	}()
	kills := s.killUntil(t, done, rand.New(rand.NewPCG(seed, 1<<32)))
	took := time.Since(began)
	t.Logf("rounds took %s with %v", took.Round(time.Second), kills)
	s.outrigger.AwaitReady(t)
	s.nothingIsLeft(t, foreign.Key)
	s.nodeIsClean(t)
	instances := s.checkLedger(t, foreign.ID)
	if !t.Failed() {
		t.Logf("%d pods, %d instances after %s: none left, no double, no foreign one deleted", rounds, instances, time.Since(began).Round(time.Second))
	}
}

// foreignInstance is one of another cluster at the same cloud.
func (s *site) foreignInstance(t *testing.T) *provider.Instance {
	t.Helper()
	tags := map[string]string{provider.TagCluster: "another", provider.TagKey: foreignName}
	i, err := s.cloud.CreateInstance(t.Context(), foreignName, foreignName, cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{Tags: tags})
	must(t, err)
	return i
}

func (s *site) rounds(rounds int, seed uint64) {
	var all sync.WaitGroup
	slots := make(chan struct{}, atTheSame)
	for n := range rounds {
		slots <- struct{}{}
		all.Go(func() {
			if err := s.round(n, rand.New(rand.NewPCG(seed, uint64(n)))); err != nil {
				s.t.Errorf("round %d: %v", n, err)
			}
			<-slots
		})
	}
	all.Wait()
}

// round is a pod from creation to end.
func (s *site) round(n int, random *rand.Rand) error {
	name, life := fmt.Sprintf("round-%d", n), random.IntN(lives)
	pod := s.newPod(name, "echo started; exec sleep infinity")
	if life == endsItself {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers[0].Command = []string{"true"}
	}
	if err := s.create(pod); err != nil {
		return err
	}
	var err error
	switch life {
	case livesOn:
		err = s.livesOn(name, random)
	case endsItself:
		err = s.phase(name, corev1.PodSucceeded)
	default:
		wait(s.t.Context(), random, 4*time.Second)
	}
	if err != nil {
		return err
	}
	if life == disappears {
		err = s.removeNow(name)
	} else {
		err = s.remove(name)
	}
	if err != nil {
		return err
	}
	return s.gone(name)
}

// livesOn: whatever is killed, a container that runs goes on.
func (s *site) livesOn(name string, random *rand.Rand) error {
	if err := s.ready(name); err != nil {
		return err
	}
	wait(s.t.Context(), random, 3*time.Second)
	return s.insist("look at pod "+name, func(ctx context.Context) error {
		pod, err := s.pod(ctx, name)
		if err != nil {
			return err
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.RestartCount != 0 || c.State.Running == nil {
				s.t.Errorf("container of %s: %d restarts, %+v", name, c.RestartCount, c.State)
			}
		}
		return nil
	})
}

func (s *site) phase(name string, phase corev1.PodPhase) error {
	return s.insist(fmt.Sprintf("wait for pod %s to be %s", name, phase), func(ctx context.Context) error {
		pod, err := s.pod(ctx, name)
		if err == nil && pod.Status.Phase != phase {
			err = fmt.Errorf("its phase is %s", pod.Status.Phase)
		}
		return err
	})
}

// removeNow forgets a pod at the API server before it has ended.
func (s *site) removeNow(name string) error {
	return s.insist("delete pod "+name, func(ctx context.Context) error {
		err := s.client.CoreV1().Pods(namespace).Delete(ctx, name, *metav1.NewDeleteOptions(0))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func wait(ctx context.Context, random *rand.Rand, most time.Duration) {
	select {
	case <-time.After(time.Duration(random.Int64N(int64(most)))):
	case <-ctx.Done():
	}
}

// kills counts them by their victim.
type kills map[string]int

// killUntil kills and restarts daemons until done is closed. When it returns
// all of them run.
func (s *site) killUntil(t *testing.T, done <-chan struct{}, random *rand.Rand) kills {
	t.Helper()
	adaptor := func() {
		s.outrigger.Adaptor.Stop(syscall.SIGKILL)
		wait(t.Context(), random, 2*time.Second)
		s.outrigger.StartAdaptor(t)
	}
	controller := func() {
		s.outrigger.Controller.Stop(syscall.SIGKILL)
		wait(t.Context(), random, 2*time.Second)
		s.outrigger.Controller.Again(t)
	}
	// The API server and its friends need seconds to be back, so they are less
	// often the victims.
	victims := []struct {
		name string
		kill func()
	}{
		{"adaptor", adaptor}, {"controller", controller}, {"adaptor", adaptor}, {"controller", controller},
		{"adaptor", adaptor}, {"controller", controller}, {"apiserver", func() { s.Restart(t) }},
		{"apiserver and adaptor", func() { s.Kill(); adaptor(); s.Start(t) }},
	}
	count := kills{}
	for {
		select {
		case <-done:
			return count
		case <-time.After(300*time.Millisecond + time.Duration(random.Int64N(int64(3*time.Second)))):
		}
		victim := victims[random.IntN(len(victims))]
		count[victim.name]++
		victim.kill()
		select {
		case <-s.outrigger.Controller.Ended(): // it began without an API server; a kubelet starts it again
			s.outrigger.Controller.Again(t)
		default:
		}
	}
}

// nodeIsClean: nothing on the node belongs to a pod any more.
func (s *site) nodeIsClean(t *testing.T) {
	t.Helper()
	s.eventually(t, func(context.Context) string {
		var left []string
		records, _ := filepath.Glob(s.node.Path("/run/peerpod/pods/[^.]*"))
		for _, r := range records {
			left = append(left, filepath.Base(r))
		}
		left = append(left, strings.Fields(s.node.Ctr(t, "tasks", "ls", "-q"))...)
		for link := range strings.Lines(s.node.Run(t, "ip", "-o", "link", "show", "type", "vxlan")) {
			left = append(left, link)
		}
		return strings.Join(left, ", ")
	})
}

// checkLedger returns how many instances there were, besides the foreign one.
func (s *site) checkLedger(t *testing.T, foreign string) int {
	t.Helper()
	lines, err := s.cloud.Ledger()
	must(t, err)
	of := map[string]string{}
	for _, line := range lines {
		if line.Kind != fake.KindInstance {
			continue
		}
		if first, twice := of[line.Key]; twice {
			t.Errorf("sandbox %s had two instances: %s and %s", line.Key, first, line.ID)
		}
		of[line.Key] = line.ID
		if line.ID == foreign && !line.Deleted.IsZero() {
			t.Errorf("the foreign instance %s was deleted", foreign)
		}
	}
	return len(of) - 1
}
