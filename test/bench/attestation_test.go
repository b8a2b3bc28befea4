// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/kbs"
	"github.com/outrigger/outrigger/test/stand"
)

// attestation is what it adds to the start of a pod. A variable of the pod is a sealed Secret, so its container starts when the
// broker has accepted the VM; beside it, in turns, is a pod without a broker whose variable is as it is.
func attestation(t *testing.T, runs int) []promises.Figure {
	dir, registry := stand.Dir(t), stand.StartRegistry(t)
	stand.StartAdaptor(t, dir, "-qemu-tpm=uefi", "-qemu-kernel="+stand.Binary(t, "podvm/confidential/podvm.efi"))
	broker := kbs.New(t, stand.Gateway, dir+"/qemu/tpm-ca/ca.pem")
	broker.Start(t, kbs.Options{})
	initdata, err := broker.InitData(t, "").Encode()
	if err != nil {
		t.Fatal(err)
	}
	attests := map[string]string{cloudinit.InitDataAnnotation: initdata}
	sealed := broker.Seal(t, "kbs:///default/key/1")
	netns, _ := stand.PodNetns(t, dir, "attestation")
	var with, without, boots []time.Duration
	var cpuWith, cpuWithout []time.Duration
	for range min(runs, 5) { // each boot by UEFI takes as long as ten starts of a container
		s := startedIn(t, dir, podclient.PodSpec{Name: "plain", Netns: netns}, registry.Ref, "sesame")
		without, cpuWithout, boots = append(without, s.start), append(cpuWithout, s.cpu), append(boots, s.boot)
		s = startedIn(t, dir, podclient.PodSpec{Name: "attests", Netns: netns, Annotations: attests}, registry.Ref, sealed)
		with, cpuWith, boots = append(with, s.start), append(cpuWith, s.cpu), append(boots, s.boot)
	}
	return []promises.Figure{{Promise: "attestation", Value: (median(with) - median(without)).Seconds(),
		How: fmt.Sprintf("%.2f s without it, from the agent's first reply to the container's start, after a boot of %.1f s; it adds %.2f s to QEMU's processor time; median of %d",
			median(without).Seconds(), median(boots).Seconds(), (median(cpuWith) - median(cpuWithout)).Seconds(), len(with))}}
}

// attestedStart is how long a VM took until its agent replied, and from then on until its container was started, elapsed and of QEMU's
// processor time. The guest measures and attests only in the latter, and a boot by UEFI differs by more than that takes.
type attestedStart struct{ boot, start, cpu time.Duration }

func startedIn(t *testing.T, dir string, spec podclient.PodSpec, image, key string) (s attestedStart) {
	began := time.Now()
	pod, err := podclient.New(dir + "/hypervisor.sock").NewPod(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pod.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	run := func(steps ...func(context.Context) error) {
		for _, step := range steps {
			if err := step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(pod.CreateVM, pod.StartVM, pod.Connect)
	s.boot, s.cpu = time.Since(began), -qemuCPU(t, dir)
	run(pod.CreateSandbox, func(ctx context.Context) error {
		c, err := pod.CreateContainer(ctx, podclient.ContainerSpec{Image: image, Env: []string{"KEY=" + key}, Args: []string{"/bin/sleep", "infinity"}})
		if err != nil {
			return err
		}
		return c.Start(ctx)
	})
	s.start = time.Since(began) - s.boot
	s.cpu += qemuCPU(t, dir)
	return s
}
