// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestContainerRunsAndItsEndIsRemembered(t *testing.T) {
	p := newPod(t)
	id := p.run(p.command("c1", `echo out $FOO; echo err >&2; hostname; cat /etc/resolv.conf /etc/hostname; exit 7`))
	// It may be long gone before anybody asks; nothing of it is lost.
	want := result{out: "out bar\npodhost\nsearch svc.local\nnameserver 127.0.0.53\npodhost\n", err: "err\n", code: 7}
	for range 3 {
		if code := p.wait(id, ""); code != 7 {
			t.Errorf("status %d", code)
		}
	}
	if got := p.finish(id, id); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	p.signal(id, "", unix.SIGKILL) // of what is gone
	if got := p.finish(id, id); got != (result{code: 7}) {
		t.Errorf("second time: %+v", got)
	}
	p.remove(id)
	p.remove(id)
	_, err := p.agent.WaitProcess(p.ctx, &agent.WaitProcessRequest{ContainerId: id})
	if status.Code(err) != codes.NotFound {
		t.Errorf("wait for a removed container: %v", err)
	}
}

func TestExecs(t *testing.T) {
	p := newPod(t)
	id := p.run(p.command("c1", "sleep 1000"))
	for _, code := range []int32{0, 4, 9} {
		exec := fmt.Sprint("e", code)
		p.exec(id, exec, fmt.Sprintf("echo $FOO; echo oops >&2; exit %d", code))
		if got, want := p.finish(id, exec), (result{out: "bar\n", err: "oops\n", code: code}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	_, err := p.agent.ExecProcess(p.ctx, &agent.ExecProcessRequest{ContainerId: id, ExecId: "bad", Process: &agent.Process{Args: []string{"nothere"}, Cwd: "/", Env: []string{"PATH=/bin"}}})
	if err == nil || !strings.Contains(err.Error(), "nothere") {
		t.Errorf("exec of a missing program: %v", err)
	}
	p.exec(id, "late", "echo up; exec sleep 1000")
	p.until(p.agent.ReadStdout, id, "late", "up\n") // runc's own process swallows the signal of those who are earlier
	p.signal(id, "late", unix.SIGUSR2)
	if got := p.finish(id, "late"); got.code != 140 {
		t.Errorf("status after SIGUSR2: %d, want 140", got.code)
	}
	if _, err := p.agent.StartContainer(p.ctx, &agent.StartContainerRequest{ContainerId: id}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("second start: %v", err)
	}
	if _, err := p.agent.ExecProcess(p.ctx, &agent.ExecProcessRequest{ContainerId: id, ExecId: "late"}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("exec id used twice: %v", err)
	}
}

func TestUsers(t *testing.T) {
	p := newPod(t)
	byName := p.command("named", "id -u; id -g; id -G; echo to-self > /dev/stdout")
	byName.StringUser = &agent.StringUser{Uid: "app"}
	if got := p.finish(p.run(byName), ""); got.out != "1234\n99\n99 0 77\nto-self\n" {
		t.Errorf("user by name: %+v", got)
	}
	image := p.command("image", "")
	image.OCI.Process.Args = nil
	if got := p.finish(p.run(image), ""); got.out != "from image\n" {
		t.Errorf("command of the image: %+v", got)
	}
	nobody := p.command("nobody", "true")
	nobody.StringUser = &agent.StringUser{Uid: "stranger"}
	if _, err := p.agent.CreateContainer(p.ctx, nobody); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "stranger") {
		t.Errorf("unknown user: %v", err)
	}
	// Nothing of a failed container is left: the id is free.
	p.run(p.command("nobody", "true"))
}

func TestTerminal(t *testing.T) {
	p := newPod(t)
	req := p.command("c1", "echo ready; sleep 1000")
	id := p.run(req)
	p.must(p.agent.ExecProcess(p.ctx, &agent.ExecProcessRequest{ContainerId: id, ExecId: "tty", Process: &agent.Process{
		Terminal: true, Args: []string{"sh"}, Env: []string{"PATH=/bin", "TERM=xterm", "PS1="}, Cwd: "/", ConsoleSize: &agent.Box{Height: 10, Width: 20},
	}}))
	p.write(id, "tty", []byte("stty size\n"))
	p.until(p.agent.ReadStdout, id, "tty", "10 20")
	p.must(p.agent.TtyWinResize(p.ctx, &agent.TtyWinResizeRequest{ContainerId: id, ExecId: "tty", Row: 33, Column: 111}))
	p.write(id, "tty", []byte("stty size\n"))
	p.until(p.agent.ReadStdout, id, "tty", "33 111")
	p.closeStdin(id, "tty") // means nothing to a terminal
	p.write(id, "tty", []byte("exit 9\n"))
	if got := p.finish(id, "tty"); got.code != 9 {
		t.Errorf("status %d", got.code)
	}
	p.must(p.agent.TtyWinResize(p.ctx, &agent.TtyWinResizeRequest{ContainerId: id, ExecId: "tty", Row: 1, Column: 1}))

	main := p.command("c2", "tty; stty size; exit 3")
	main.OCI.Process.Terminal = true
	main.OCI.Process.ConsoleSize = &agent.Box{Height: 24, Width: 80}
	if got := p.finish(p.run(main), ""); !strings.HasSuffix(got.out, "24 80\r\n") || got.code != 3 {
		t.Errorf("container with a terminal: %+v", got)
	}
}

// TestStdinByteExact sends 100 MB through cat while reading it back.
func TestStdinByteExact(t *testing.T) {
	p := newPod(t)
	req := p.command("c1", "cat; echo done >&2; exit 4")
	id := p.run(req)
	data := make([]byte, 100_000_000)
	fill := rand.NewChaCha8([32]byte{1})
	fill.Read(data)
	var wg sync.WaitGroup
	wg.Go(func() {
		p.write(id, "", data)
		p.closeStdin(id, "")
	})
	got, n := sha256.New(), counter(0)
	if err := p.copy(io.MultiWriter(got, &n), p.agent.ReadStdout, id, ""); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if want := sha256.Sum256(data); !bytes.Equal(got.Sum(nil), want[:]) {
		t.Errorf("%d of %d bytes came back, or others", n, len(data))
	}
	if code := p.wait(id, ""); code != 4 {
		t.Errorf("status %d", code)
	}
	_, err := p.agent.WriteStdin(p.ctx, &agent.WriteStreamRequest{ContainerId: id, Data: []byte("x")})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("write to a process that is gone: %v", err)
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

func TestMuchOutputIsComplete(t *testing.T) {
	p := newPod(t)
	const size = 256 << 20
	id := p.run(p.command("c1", fmt.Sprintf("yes 0123456789 | head -c 1048576 > /tmp/f; for i in $(seq %d); do cat /tmp/f; done; exit 1", size>>20)))
	sum, n, begin := sha256.New(), counter(0), time.Now()
	if err := p.copy(io.MultiWriter(sum, &n), p.agent.ReadStdout, id, ""); err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f MB/s", size/1e6/time.Since(begin).Seconds())
	want := sha256.New()
	block := bytes.Repeat([]byte("0123456789\n"), 1<<17)[:1<<20]
	for range size >> 20 {
		want.Write(block)
	}
	if n != size || !bytes.Equal(sum.Sum(nil), want.Sum(nil)) {
		t.Errorf("%d bytes of %d, or others", n, size)
	}
	if code := p.wait(id, ""); code != 1 {
		t.Errorf("status %d", code)
	}
}

func TestSignals(t *testing.T) {
	p := newPod(t)
	trap := p.run(p.command("trap", `trap 'echo got TERM; exit 7' TERM; echo ready; while :; do sleep 0.05; done`))
	p.until(p.agent.ReadStdout, trap, "", "ready")
	p.signal(trap, trap, unix.SIGTERM)
	if got := p.finish(trap, ""); got.out != "got TERM\n" || got.code != 7 {
		t.Errorf("SIGTERM: %+v", got)
	}
	kill := p.run(p.command("kill", "sleep 1000 & sleep 1000"))
	p.signal(kill, "", unix.SIGKILL)
	if got := p.finish(kill, ""); got.code != 137 {
		t.Errorf("SIGKILL: %+v", got)
	}
	_, err := p.agent.SignalProcess(p.ctx, &agent.SignalProcessRequest{ContainerId: kill, Signal: 99})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("signal 99: %v", err)
	}
	// Created and never started.
	p.must(p.agent.CreateContainer(p.ctx, p.command("never", "true")))
	p.signal("never", "", unix.SIGKILL)
	if code := p.wait("never", ""); code != 137 {
		t.Errorf("status of a container that was never started: %d", code)
	}
}

func TestLimitsStatsAndUpdate(t *testing.T) {
	p := newPod(t)
	req := p.command("c1", "echo ready; while :; do :; done")
	req.OCI.Linux.Resources = &agent.LinuxResources{
		Memory: &agent.LinuxMemory{Limit: 64 << 20, Swap: 64 << 20}, CPU: &agent.LinuxCPU{Quota: 20000, Period: 100000},
	}
	id := p.run(req)
	p.until(p.agent.ReadStdout, id, "", "ready")
	stats := func() *agent.StatsContainerResponse {
		resp, err := p.agent.StatsContainer(p.ctx, &agent.StatsContainerRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	s := stats()
	if mem := s.CgroupStats.MemoryStats.Usage; mem.Limit != 64<<20 || mem.Usage == 0 {
		t.Errorf("memory %v", mem)
	}
	if s.CgroupStats.CpuStats.CpuUsage.TotalUsage == 0 || s.CgroupStats.PidsStats.Current != 1 {
		t.Errorf("stats %v", s.CgroupStats)
	}
	p.must(p.agent.UpdateContainer(p.ctx, &agent.UpdateContainerRequest{ContainerId: id, Resources: &agent.LinuxResources{
		Devices: []*agent.LinuxDeviceCgroup{{Access: "rwm"}},
		Memory:  &agent.LinuxMemory{Limit: 128 << 20, Swap: 128 << 20}, CPU: &agent.LinuxCPU{Quota: 30000, Period: 100000},
	}}))
	if got := stats().CgroupStats.MemoryStats.Usage.Limit; got != 128<<20 {
		t.Errorf("limit after the update: %d", got)
	}
	p.exec(id, "dev", "echo x > /dev/null && head -c 1 /dev/zero | wc -c")
	if got := p.finish(id, "dev"); got.out != "1\n" {
		t.Errorf("devices after the update: %+v", got)
	}
	free := p.run(p.command("c2", "sleep 1000"))
	resp, err := p.agent.StatsContainer(p.ctx, &agent.StatsContainerRequest{ContainerId: free})
	if limit := resp.GetCgroupStats().GetMemoryStats().GetUsage().GetLimit(); err != nil || limit == 0 || limit > 1<<50 {
		t.Errorf("a container without a limit has %d: %v", limit, err)
	}
}

func TestPauseAndResume(t *testing.T) {
	p := newPod(t)
	id := p.run(p.command("c1", "while read line; do echo got $line; done"))
	p.must(p.agent.PauseContainer(p.ctx, &agent.PauseContainerRequest{ContainerId: id}))
	p.write(id, "", []byte("a\n"))
	ctx, cancel := context.WithTimeout(p.ctx, 300*time.Millisecond)
	defer cancel()
	if resp, err := p.agent.ReadStdout(ctx, &agent.ReadStreamRequest{ContainerId: id, Len: 100}); err == nil {
		t.Errorf("a paused container said %q", resp.Data)
	}
	p.must(p.agent.ResumeContainer(p.ctx, &agent.ResumeContainerRequest{ContainerId: id}))
	p.until(p.agent.ReadStdout, id, "", "got a")
	p.must(p.agent.PauseContainer(p.ctx, &agent.PauseContainerRequest{ContainerId: id}))
	p.signal(id, "", unix.SIGKILL)
	if code := p.wait(id, ""); code != 137 {
		t.Errorf("killed while paused: status %d", code)
	}
}

func TestOOM(t *testing.T) {
	p := newPod(t)
	event := make(chan string, 1)
	go func() {
		resp, err := p.agent.GetOOMEvent(p.ctx, &agent.GetOOMEventRequest{})
		event <- fmt.Sprint(resp.GetContainerId(), err)
	}()
	req := p.command("eater", "head -c 100000000 /dev/zero | tail -c 100000000 | wc -c; x=$(head -c 90000000 /dev/zero | tr '\\0' a); exit 0")
	req.OCI.Linux.Resources.Memory = &agent.LinuxMemory{Limit: 24 << 20, Swap: 24 << 20}
	id := p.run(req)
	if code := p.wait(id, ""); code == 0 {
		t.Error("nothing was killed")
	}
	select {
	case got := <-event:
		if got != "eater<nil>" {
			t.Errorf("event %s", got)
		}
	case <-time.After(patience):
		t.Error("no event")
	}
}

func TestFiftyCallsAtOnceOnOneConnection(t *testing.T) {
	p := newPod(t)
	id := p.run(p.command("c1", "sleep 1000"))
	var wg sync.WaitGroup
	for range 40 { // long polls that stay open
		go p.agent.WaitProcess(p.ctx, &agent.WaitProcessRequest{ContainerId: id})
		go p.agent.ReadStdout(p.ctx, &agent.ReadStreamRequest{ContainerId: id, Len: 100})
		go p.agent.GetOOMEvent(p.ctx, &agent.GetOOMEventRequest{})
	}
	for i := range 12 {
		wg.Go(func() {
			exec := fmt.Sprint("e", i)
			p.exec(id, exec, fmt.Sprintf("head -c 200000 /dev/zero; exit %d", i))
			if got := p.finish(id, exec); len(got.out) != 200000 || got.code != int32(i) {
				t.Errorf("exec %d: %d bytes, status %d", i, len(got.out), got.code)
			}
			p.must(p.health.Check(p.ctx, &agent.CheckRequest{}))
		})
	}
	wg.Wait()
}
