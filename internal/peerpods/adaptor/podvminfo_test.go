// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/outrigger/outrigger/internal/protocol/podvminfo"
	"github.com/outrigger/outrigger/provider/fake"
)

func TestWhichVMRunsAPod(t *testing.T) {
	s := newStand(t, nil)
	pod := &podvminfo.GetInfoRequest{PodName: "pod-a1", PodNamespace: "default"}
	_, err := s.GetInfo(t.Context(), pod)
	wantCode(t, err, codes.NotFound)
	s.create("a1")
	_, err = s.GetInfo(t.Context(), pod)
	wantCode(t, err, codes.NotFound)
	if err := s.start("a1"); err != nil {
		t.Fatal(err)
	}
	info, err := s.GetInfo(t.Context(), pod)
	if err != nil || info.GetVMID() != "fake-000001" {
		t.Errorf("GetInfo: %v, %v", info, err)
	}
	_, err = s.GetInfo(t.Context(), &podvminfo.GetInfoRequest{PodName: "pod-a1", PodNamespace: "other"})
	wantCode(t, err, codes.NotFound)
}

// TestWaitingForAVM covers the gap between CreateVM and the instance.
func TestWaitingForAVM(t *testing.T) {
	s := newStand(t, nil)
	wait := &podvminfo.GetInfoRequest{PodName: "pod-b1", PodNamespace: "default", Wait: true}
	type answer struct {
		info *podvminfo.GetInfoResponse
		err  error
	}
	answers := make(chan answer, 3)
	ask := func() {
		go func() {
			info, err := s.GetInfo(context.Background(), wait)
			answers <- answer{info, err}
		}()
	}
	ask() // before the pod is heard of
	s.create("b1")
	ask()
	blocked, gate := fake.Block(fake.OpCreate)
	s.cloud.Inject(blocked)
	started := make(chan error, 1)
	go func() { started <- s.start("b1") }()
	<-gate.Reached()
	ask()
	select {
	case a := <-answers:
		t.Fatalf("an answer before there is an instance: %v", a)
	default:
	}
	gate.Open()
	for range 3 {
		if a := <-answers; a.err != nil || a.info.GetVMID() != "fake-000001" {
			t.Errorf("answer %v", a)
		}
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
}

func TestWaitingEndsWithItsCaller(t *testing.T) {
	s := newStand(t, nil)
	wait := &podvminfo.GetInfoRequest{PodName: "p", PodNamespace: "n", Wait: true}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := s.GetInfo(ctx, wait)
	wantCode(t, err, codes.DeadlineExceeded)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = s.GetInfo(ctx, wait)
	wantCode(t, err, codes.Canceled)
}
