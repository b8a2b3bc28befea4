// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/cli/demoimage"
	"github.com/outrigger/outrigger/test/stand"
)

// askPort sends a line to a port of this host and returns the reply.
func askPort(network, address string) (string, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintln(c, "hello")
	if half, ok := c.(*net.TCPConn); ok {
		half.CloseWrite()
		data, err := io.ReadAll(c)
		return string(data), err
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

// TestCommandLinesOfDocker: what people who type docker type, and what it does to a pod in a VM.
func TestCommandLinesOfDocker(t *testing.T) {
	c := newCLI(t)
	layout := filepath.Join(t.TempDir(), "image")
	if err := demoimage.Build(layout, demoimage.Options{Extra: map[string]string{"nettool": stand.Build(t, "./test/nettool")}}); err != nil {
		t.Fatal(err)
	}
	c.image = "oci:" + layout
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("content\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "env"), []byte("# from a file\nA=1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// One VM for all rows that need one.
	line := "run -d --name web --rm=false -p 127.0.0.1:18080:7000 -p 127.0.0.1:18081:7000/udp -v " + dir + ":/host:ro -v data:/data --tmpfs /t:size=1m " +
		"--env-file " + dir + "/env -e B=2 --label app=web --read-only --cap-drop ALL --cap-add NET_BIND_SERVICE --cap-add DAC_OVERRIDE --entrypoint sh --hostname host1 -w /data -m 64m " + c.image
	script := `nettool echo 7000 & trap 'exit 9' TERM; echo up; while :; do sleep 0.2; done`
	if _, stderr, code := c.run(t, "", append(strings.Fields(line), "-c", script)...); code != 0 || !strings.Contains(stderr, "gets a copy of "+dir) {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	eventually(t, func() error {
		if got, err := askPort("tcp", "127.0.0.1:18080"); got != "hello\n" {
			return fmt.Errorf("-p by TCP: %q, %v", got, err)
		}
		return nil
	})
	eventually(t, func() error {
		if got, err := askPort("udp", "127.0.0.1:18081"); got != "hello\n" {
			return fmt.Errorf("-p by UDP: %q, %v", got, err)
		}
		return nil
	})
	for _, row := range []struct {
		line, stdout string // stdout may be part of what is printed
		stderr       string
		code         int
	}{
		{line: "port web", stdout: "7000/tcp -> 127.0.0.1:18080\n7000/udp -> 127.0.0.1:18081\n"},
		{line: "ps -q --filter name=we --filter label=app=web --no-trunc --format {{.Names}}", stdout: "\n"},
		{line: "ps --filter status=running --format {{.Names}}:{{.Ports}}", stdout: "web:127.0.0.1:18080->7000/tcp, 127.0.0.1:18081->7000/udp\n"},
		{line: "inspect -f {{.State.Running}},{{.Config.Hostname}},{{.HostConfig.Memory}} web", stdout: "true,host1,67108864\n"},
		{line: "exec web cat /host/f", stdout: "content\n"},
		{line: "exec web touch /host/g", stderr: "Read-only", code: 1},
		{line: "exec web touch /new", stderr: "Read-only", code: 1},
		{line: "exec web sh -c pwd;echo>/data/x;echo>/t/x;echo$IFS$A$B", stdout: "/data\n"},
		{line: "exec -e B=3 web env", stdout: "B=3\n"},
		{line: "exec web env", stdout: "A=1\n"},
		{line: "exec web grep CapEff /proc/1/status", stdout: "CapEff:\t0000000000000402\n"},
		{line: "exec web grep CapEff /proc/self/status", stdout: "CapEff:\t0000000000000402\n"},
		{line: "top web", stdout: "sh -c nettool"},
		{line: "cp " + dir + " web:/data/copy"},
		{line: "exec web cat /data/copy/f", stdout: "content\n"},
		{line: "cp web:/data/copy/. " + dir + "/back"},
		{line: "cp web:/nothing " + dir, stderr: "No such file", code: 125},
		{line: "logs web", stdout: "up\n"},
		{line: "run -p 127.0.0.1:18080:80 " + c.image, stderr: "port 18080 of this host is in use by pod web", code: 125},
		{line: "run --gpus all " + c.image, stderr: "--gpus: no device", code: 125},
		{line: "run --network host " + c.image, stderr: "--network", code: 125},
		{line: "run --entrypont sh " + c.image, stderr: "did you mean --entrypoint?", code: 125},
		{line: "--version", stdout: "outrigger "},
		{line: "stop -t 20 web", stdout: "web\n"},
		{line: "wait web", stdout: "9\n"},
		{line: "ps -a --format {{.Names}},{{.State}}", stdout: "web,exited\n"},
		{line: "start web", stdout: "web\n"}, // a new VM
		{line: "exec web cat /host/f", stdout: "content\n"},
		{line: "port web 7000/udp", stdout: "127.0.0.1:18081\n"},
		{line: "stop web", stdout: "web\n"},
		{line: "logs web", stdout: "up\nup\n"},
		{line: "rm web", stdout: "web\n"},
		{line: "run -d --name twice --rm=false --restart on-failure:1 " + c.image + " sh -c echo$IFS$((1+1));exit$IFS$((3))", stdout: "twice\n"},
		{line: "wait twice", stdout: "3\n"},
	} {
		stdout, stderr, code := c.run(t, "", strings.Fields(row.line)...)
		if code != row.code || !strings.Contains(stdout, row.stdout) || !strings.Contains(stderr, row.stderr) {
			t.Errorf("outrigger %s: exit code %d, want %d with %q and %q:\n%s%s", row.line, code, row.code, row.stdout, row.stderr, stdout, stderr)
		}
	}
	eventually(t, func() error {
		if stdout, stderr, _ := c.run(t, "", "ps", "-q", "-f", "name=twice", "-f", "exited=3"); stdout == "" {
			return errors.New("--restart on-failure:1 has not given up: " + stderr)
		}
		return nil
	})
	if stdout, _, _ := c.run(t, "", "logs", "twice"); stdout != "2\n2\n" {
		t.Errorf("--restart on-failure:1 ran %q", stdout)
	}
	c.run(t, "", "rm", "twice")
	if data, err := os.ReadFile(filepath.Join(dir, "back/f")); string(data) != "content\n" {
		t.Errorf("cp brought %q back: %v", data, err)
	}
	c.wantNothing(t)
}
