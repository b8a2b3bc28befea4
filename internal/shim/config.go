// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/outrigger/outrigger/internal/podclient"
)

// Where the configuration comes from, first wins: ConfigPath in the runtime's
// options of containerd's configuration, the variable ConfigVar, the default
// file if it is there. SocketVar replaces the file's socket.
const (
	ConfigVar     = "OUTRIGGER_SHIM_CONFIG"
	SocketVar     = "OUTRIGGER_HYPERVISOR_SOCKET"
	DefaultConfig = "/etc/outrigger/shim.toml"
	DefaultSocket = "/run/peerpod/hypervisor.sock"
)

// Config is a configuration file in the shape of Kata's, so that one file does
// for both shims. Keys that mean nothing here are ignored and named in the log.
type Config struct {
	Hypervisor struct {
		Remote RemoteConfig `toml:"remote"`
	} `toml:"hypervisor"`
	Runtime   RuntimeConfig `toml:"runtime"`
	Outrigger OwnConfig     `toml:"outrigger"`

	// Ignored are the file's keys that mean nothing to this shim.
	Ignored []string `toml:"-"`
}

// RemoteConfig is the table [hypervisor.remote].
type RemoteConfig struct {
	// Socket of the hypervisor service; [DefaultSocket] by default.
	Socket string `toml:"remote_hypervisor_socket"`
	// Timeout is the deadline of StartVM in seconds; 600 by default.
	Timeout int `toml:"remote_hypervisor_timeout"`
	// EnableAnnotations are the hypervisor annotations that a pod may carry,
	// without their prefix; by default those that a remote hypervisor knows.
	EnableAnnotations []string `toml:"enable_annotations"`
	// VCPUs and MemoryMiB of a pod that says nothing; 0, the default, leaves
	// it to the provider.
	VCPUs     float64 `toml:"default_vcpus"`
	MemoryMiB int64   `toml:"default_memory"`
}

// RuntimeConfig is the table [runtime].
type RuntimeConfig struct {
	// CreateTimeout is the deadline of CreateContainer, during which the
	// guest pulls the image, in seconds; 600 by default. The kubelet's
	// runtime-request-timeout applies too.
	CreateTimeout int `toml:"create_container_timeout"`
	// StaticSizing adds the pod's limits to the size of its VM; true by default.
	StaticSizing *bool `toml:"static_sandbox_resource_mgmt"`
	// DisableGuestSeccomp leaves seccomp profiles out; false by default.
	DisableGuestSeccomp bool `toml:"disable_guest_seccomp"`
	// Debug logs at that level, as does containerd's own debug level.
	Debug bool `toml:"enable_debug"`
}

// OwnConfig is the table [outrigger], which the Kata shim does not have.
type OwnConfig struct {
	// CopyLimitMiB is the most that one mount may hold, since mounts are
	// copied into the guest; 128 by default.
	CopyLimitMiB int64 `toml:"copy_limit_mib"`
	// StopTimeout is how long StopVM is tried while the hypervisor service
	// cannot be reached, in seconds; 60 by default.
	StopTimeout int `toml:"stop_timeout"`
}

func defaultConfig() *Config {
	c := &Config{}
	c.Hypervisor.Remote.Socket = DefaultSocket
	c.Hypervisor.Remote.Timeout = int(podclient.StartTimeout / time.Second)
	c.Hypervisor.Remote.EnableAnnotations = []string{
		"machine_type", "default_memory", "default_vcpus", "image", "default_gpus", "default_gpu_model", "cc_init_data",
	}
	c.Runtime.CreateTimeout = int(podclient.PullTimeout / time.Second)
	c.Outrigger = OwnConfig{CopyLimitMiB: 128, StopTimeout: 60}
	return c
}

// LoadConfig reads the file that containerd's options name, or what [ConfigVar]
// or the default say when they name none.
func LoadConfig(path string, getenv func(string) string) (*Config, error) {
	c := defaultConfig()
	if err := c.read(path, getenv(ConfigVar)); err != nil {
		return nil, err
	}
	if socket := getenv(SocketVar); socket != "" {
		c.Hypervisor.Remote.Socket = socket
	}
	return c, c.check()
}

func (c *Config) read(fromOptions, fromEnv string) error {
	path := fromOptions
	if path == "" {
		path = fromEnv
	}
	optional := path == ""
	if optional {
		path = DefaultConfig
	}
	data, err := os.ReadFile(path)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the shim's configuration, named by ConfigPath in containerd's runtime options or by %s: %w", ConfigVar, err)
	}
	if err := c.parse(data); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (c *Config) parse(data []byte) error {
	err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(c)
	var missing *toml.StrictMissingError
	if errors.As(err, &missing) {
		for _, e := range missing.Errors {
			c.Ignored = append(c.Ignored, strings.Join(e.Key(), "."))
		}
		// That error hides others, which the plain decoder tells.
		err = toml.Unmarshal(data, c)
	}
	var bad *toml.DecodeError
	if errors.As(err, &bad) {
		line, _ := bad.Position()
		return fmt.Errorf("line %d, %s: %w", line, strings.Join(bad.Key(), "."), err)
	}
	return err
}

func (c *Config) check() error {
	remote := c.Hypervisor.Remote
	switch {
	case !filepath.IsAbs(remote.Socket):
		return fmt.Errorf("remote_hypervisor_socket %q is no absolute path", remote.Socket)
	case remote.Timeout <= 0:
		return fmt.Errorf("remote_hypervisor_timeout %d: must be seconds above 0", remote.Timeout)
	case remote.VCPUs < 0:
		return fmt.Errorf("default_vcpus %v is negative", remote.VCPUs)
	case remote.MemoryMiB < 0:
		return fmt.Errorf("default_memory %d is negative", remote.MemoryMiB)
	case c.Runtime.CreateTimeout <= 0:
		return fmt.Errorf("create_container_timeout %d: must be seconds above 0", c.Runtime.CreateTimeout)
	case c.Outrigger.CopyLimitMiB <= 0:
		return fmt.Errorf("copy_limit_mib %d: must be above 0", c.Outrigger.CopyLimitMiB)
	case c.Outrigger.StopTimeout <= 0:
		return fmt.Errorf("stop_timeout %d: must be seconds above 0", c.Outrigger.StopTimeout)
	}
	return nil
}

func (c *Config) staticSizing() bool {
	return c.Runtime.StaticSizing == nil || *c.Runtime.StaticSizing
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
