// SPDX-License-Identifier: Apache-2.0

//go:build integration

package byom

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
	sim "github.com/outrigger/outrigger/test/cloudsim/byom"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/testns"
)

// sshd is a real machine's server: OpenSSH with internal-sftp in a folder that
// stands for /media of the guest.
type sshd struct {
	media string
	port  int64
}

// startSSHD runs OpenSSH on a port of its own with files of its own.
func startSSHD(t *testing.T, k *sim.Keys) *sshd {
	t.Helper()
	testns.RequireRoot(t)
	path, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		t.Fatalf("%v: run make setup, which installs openssh-server", err)
	}
	// The folder of a chroot must be root's alone, up to the root folder.
	base, err := os.MkdirTemp("/var/lib", "outrigger-sshd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	s := &sshd{media: filepath.Join(base, "media")}
	if err := errors.Join(os.Chmod(base, 0o755), os.MkdirAll(filepath.Join(s.media, "cidata"), 0o755), os.MkdirAll("/run/sshd", 0o755)); err != nil {
		t.Fatal(err)
	}
	k.Write(t, "authorized", readFile(t, k.File("id.pub")))
	s.port = freePort(t)
	k.Write(t, "sshd_config", fmt.Sprintf(`ListenAddress 127.0.0.1:%d
HostKey %s
PidFile none
AuthorizedKeysFile %s
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
Subsystem sftp internal-sftp
ForceCommand internal-sftp
ChrootDirectory %s
`, s.port, k.File("host"), k.File("authorized"), s.media))
	cmd := exec.Command(path, "-D", "-e", "-f", k.File("sshd_config"))
	log, err := os.Create(k.File("sshd.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log(readFile(t, log.Name()))
		}
	})
	err = poll.Pace{First: 10 * time.Millisecond, Max: 100 * time.Millisecond}.Until(t.Context(), func() (bool, error) {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func freePort(t *testing.T) int64 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int64(l.Addr().(*net.TCPAddr).Port)
}

// boot is what the guest does when it starts: /media is empty except for the
// id.
func (s *sshd) boot(t *testing.T, n int) {
	t.Helper()
	folder := filepath.Join(s.media, "cidata")
	if err := errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "boot-id"), fmt.Appendf(nil, "boot-%d\n", n), 0o644)); err != nil {
		t.Error(err)
	}
}

// guest reboots whenever it is told to, until the test ends.
func (s *sshd) guest(t *testing.T) {
	s.boot(t, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	t.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() {
		boots := 1
		_ = poll.Pace{First: 5 * time.Millisecond, Max: 5 * time.Millisecond}.Until(ctx, func() (bool, error) {
			if _, err := os.Stat(filepath.Join(s.media, "cidata", "reboot")); err == nil {
				boots++
				s.boot(t, boots)
			}
			return false, nil
		})
	})
}

// TestOpenSSH is a life on a real SSH server: the user-data arrives byte by
// byte, nothing is replaced, and the machine comes back after its reboot.
func TestOpenSSH(t *testing.T) {
	k := sim.NewKeys(t)
	server := startSSHD(t, k)
	server.guest(t)
	pool := sim.Start(t, 1, k) // for its API server
	cfg := configFor(k, 1)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	cfg.PoolIPs, cfg.Port, cfg.User, cfg.Kubeconfig = []string{"127.0.0.1"}, server.port, me.Username, pool.Kubeconfig
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.pace = poll.Pace{First: 5 * time.Millisecond, Max: 50 * time.Millisecond}
	if err := p.ConfigVerifier(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"first", "second"} {
		i, err := create(t.Context(), p, key)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := readFile(t, filepath.Join(server.media, userDataFile)), "#cloud-config\n# "+key+"\n"; got != want {
			t.Errorf("user-data %q, want %q", got, want)
		}
		m, err := p.connect(t.Context(), i.IPs[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := m.put(t.Context(), userDataFile, "other"); !errors.Is(err, errThere) {
			t.Errorf("OpenSSH replaced a file: %v", err)
		}
		m.close()
		// The machine may reboot before it has replied that it will.
		for err = provider.ErrUnavailable; errors.Is(err, provider.ErrUnavailable); {
			err = p.DeleteInstance(t.Context(), i.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRealAPIServer: two nodes claim and release all machines at the same time,
// and a real API server says who was first.
func TestRealAPIServer(t *testing.T) {
	testns.RequireRoot(t)
	plane := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	plane.Kubectl(t, "create", "namespace", "pods")
	const n = 8
	f := start(t, n)
	f.cfg.Kubeconfig = plane.Kubeconfig
	nodes := []*Provider{f.mustOpen(t), f.mustOpen(t)}
	for round := range 3 {
		var group sync.WaitGroup
		var mu sync.Mutex
		owners := map[string]string{}
		ids := []string{}
		for i := range n {
			group.Go(func() {
				key := fmt.Sprintf("key-%d-%d", round, i)
				made, err := createUntil(t.Context(), nodes[i%2], key)
				if err != nil {
					t.Errorf("%s: %v", key, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				addr := made.IPs[0].String()
				if owners[addr] != "" {
					t.Errorf("round %d: %s is %s's and %s's", round, addr, owners[addr], key)
				}
				owners[addr] = key
				ids = append(ids, made.ID)
			})
		}
		group.Wait()
		for i, id := range ids {
			group.Go(func() {
				if err := nodes[(i+1)%2].DeleteInstance(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	if wrong := f.World.Violations(); len(wrong) > 0 {
		t.Errorf("books: %q", wrong)
	}
}

// createUntil tries again while the API server has too much to do.
func createUntil(ctx context.Context, p *Provider, key string) (made *provider.Instance, err error) {
	for range 10 {
		if made, err = create(ctx, p, key); !provider.Retryable(err) {
			return made, err
		}
	}
	return made, err
}
