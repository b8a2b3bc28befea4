// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// Where the configuration comes from, first wins: ConfigPath in the runtime's
// options of containerd's configuration, the variable ConfigVar, the default
// file if it exists. SocketVar replaces the file's socket.
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

	// mountInfo is /proc/self/mountinfo, except in tests.
	mountInfo string `toml:"-"`
}

// The fields' tags say what they mean; the reference is made from them.

// RemoteConfig is the table [hypervisor.remote].
type RemoteConfig struct {
	Socket            string   `toml:"remote_hypervisor_socket" usage:"where the adaptor listens"`
	Timeout           int      `toml:"remote_hypervisor_timeout" usage:"seconds for StartVM"`
	EnableAnnotations []string `toml:"enable_annotations" usage:"which annotations io.katacontainers.config.hypervisor.* a pod may carry; another one fails the pod"`
	VCPUs             float64  `toml:"default_vcpus" usage:"processors of a pod that says nothing; 0 leaves it to the provider"`
	MemoryMiB         int64    `toml:"default_memory" usage:"MiB of a pod that says nothing; 0 leaves it to the provider"`
}

// RuntimeConfig is the table [runtime].
type RuntimeConfig struct {
	CreateTimeout       int  `toml:"create_container_timeout" usage:"seconds for CreateContainer, during which the guest pulls; the kubelet's runtime-request-timeout applies as well"`
	StaticSizing        bool `toml:"static_sandbox_resource_mgmt" usage:"the pod's limits are added to the size of its VM"`
	DisableGuestSeccomp bool `toml:"disable_guest_seccomp" usage:"leave seccomp profiles out"`
	Debug               bool `toml:"enable_debug" usage:"log at debug level; containerd's own debug level does so too"`
}

// OwnConfig is the table [outrigger], which the Kata shim does not have.
type OwnConfig struct {
	CopyLimitMiB int64 `toml:"copy_limit_mib" usage:"the most MiB that one copied mount may hold"`
	StopTimeout  int   `toml:"stop_timeout" usage:"seconds for which StopVM is repeated while the adaptor is away"`
}

func defaultConfig() *Config {
	c := &Config{mountInfo: "/proc/self/mountinfo"}
	c.Hypervisor.Remote.Socket = DefaultSocket
	c.Hypervisor.Remote.Timeout = int(podclient.StartTimeout / time.Second)
	c.Hypervisor.Remote.EnableAnnotations = []string{
		"machine_type", "default_memory", "default_vcpus", "image", "default_gpus", "default_gpu_model", "cc_init_data",
	}
	c.Runtime.CreateTimeout = int(podclient.PullTimeout / time.Second)
	c.Runtime.StaticSizing = true
	c.Outrigger = OwnConfig{CopyLimitMiB: 128, StopTimeout: 60}
	return c
}

// Key is one of the configuration file.
type Key struct{ Table, Name, Default, Usage string }

// Keys returns those of the configuration file.
func Keys() []Key { return keys("", reflect.ValueOf(*defaultConfig())) }

func keys(table string, v reflect.Value) []Key {
	var all []Key
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		name := field.Tag.Get("toml")
		switch {
		case name == "-":
		case field.Type.Kind() == reflect.Struct:
			all = append(all, keys(strings.TrimPrefix(table+"."+name, "."), value)...)
		case field.Type.Kind() == reflect.Slice:
			all = append(all, Key{table, name, strings.Join(value.Interface().([]string), ", "), field.Tag.Get("usage")})
		default:
			all = append(all, Key{table, name, fmt.Sprint(value), field.Tag.Get("usage")})
		}
	}
	return all
}

// Variables returns the variables that the program reads from containerd's
// environment, each with its meaning.
func Variables() [][2]string {
	return [][2]string{
		{ConfigVar, "configuration file, where the runtime's options in containerd's configuration name none (default " + DefaultConfig + ", if it is there)"},
		{SocketVar, "replaces remote_hypervisor_socket of the file"},
	}
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
	if missing, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		for _, e := range missing.Errors {
			c.Ignored = append(c.Ignored, strings.Join(e.Key(), "."))
		}
		// That error hides others, which the lenient decoder returns.
		err = toml.Unmarshal(data, c)
	}
	if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := bad.Position()
		return fmt.Errorf("line %d, %s: %w", line, strings.Join(bad.Key(), "."), err)
	}
	return err
}

func (c *Config) check() error {
	remote := c.Hypervisor.Remote
	switch {
	case !filepath.IsAbs(remote.Socket):
		return fmt.Errorf("remote_hypervisor_socket %q is not an absolute path", remote.Socket)
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

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
