// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// What the engine has from the beginning. The image has a volume, and what is
// started from EndingImage ends at once.
const (
	Image       = "outrigger/podvm:latest"
	EndingImage = "ends:latest"
	Network     = "bridge"
	Gateway     = "172.17.0.1"
	Volume      = "/var/lib/pods"
	CPUs        = 8
	Memory      = 16 << 30
	// step is how long an engine takes to make, start or remove.
	step = time.Millisecond
)

// Versions of the API that there are to choose from: that of Docker 20.10, and
// a new one.
var Versions = []string{"1.41", "1.54"}

// Engine is a running one.
type Engine struct {
	World *cloudsim.World
	// Host is its DOCKER_HOST.
	Host string
	// Version is that of its API.
	Version string

	mu         sync.Mutex
	containers []*container
	volumes    []*volume
	names      map[string]bool // taken, also before and after there is a container to see
	addresses  byte
	denied     bool
	wrong      []string
}

// Start serves an engine with an API of a version until the test ends.
func Start(t testing.TB, version string) *Engine {
	t.Helper()
	e := &Engine{World: cloudsim.NewWorld(), Version: version, names: map[string]bool{}}
	if _, err := load(version); err != nil {
		t.Fatal(err)
	}
	// Names of sockets are short, names of tests' folders are not.
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(e.World.Handler(e, e.action, refuse))
	server.Listener.Close()
	server.Listener = listener
	// Faults abort connections on purpose, which is not news.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(func() {
		for _, what := range e.Wrong() {
			t.Errorf("the engine or its client: %s", what)
		}
	})
	e.Host = "unix://" + socket
	return e
}

// newID returns one as the engine gives them.
func newID() string {
	random := make([]byte, 32)
	_, _ = rand.Read(random)
	return hex.EncodeToString(random)
}

func (e *Engine) isWrong(format string, args ...any) {
	e.wrong = append(e.wrong, fmt.Sprintf(format, args...))
}

// Wrong returns what the definition does not allow, in requests and in answers.
// The test fails for it when it ends.
func (e *Engine) Wrong() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.wrong)
}

// Deny makes the engine refuse every call, as plugins for authorization do.
func (e *Engine) Deny() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.denied = true
}

// Leaks returns what the test has left.
func (e *Engine) Leaks() ([]string, error) {
	var left []string
	for _, r := range e.World.Own() {
		left = append(left, r.String())
	}
	return left, nil
}

// ReadFile returns a file that was copied into a container.
func (e *Engine) ReadFile(id, name string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.find(id)
	if c == nil {
		return "", fmt.Errorf("no container %s", id)
	}
	text, ok := c.files[name]
	if !ok {
		return "", fmt.Errorf("container %s has no file %s", id, name)
	}
	return text, nil
}

// Kill ends what runs in a container.
func (e *Engine) Kill(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.find(id); c != nil {
		c.stop(137)
	}
}

// AddForeign makes somebody else's container, with a volume, and returns its
// id. Labels as another user of this software gives them are for the caller to
// choose; the ledger gets tags.
func (e *Engine) AddForeign(name string, labels, tags map[string]string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &container{id: newID(), name: name, created: time.Now(), volume: newID(), status: "running", files: map[string]string{}, foreign: true}
	c.config.Image, c.config.Labels = Image, labels
	c.addr = e.address()
	e.names[name] = true
	e.containers = append(e.containers, c)
	e.World.AddForeign(cloudsim.KindInstance, c.id, tags)
	e.World.AddForeign(cloudsim.KindDisk, c.volume, nil)
	return c.id
}

// address returns one of the network.
func (e *Engine) address() netip.Addr {
	e.addresses++
	return netip.AddrFrom4([4]byte{172, 17, 0, 1 + e.addresses})
}

func refuse(out http.ResponseWriter, _ *http.Request, f cloudsim.Fault) {
	fail(out, f.Status, f.Message)
}
