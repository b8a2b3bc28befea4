// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// Name is the provider's name on command lines.
const Name = "byom"

func init() { provider.AddCloudProvider(Name, NewManager()) }

// Config is the provider's configuration.
type Config struct {
	PoolIPs  []string `flag:"vm-pool-ips" env:"VM_POOL_IPS" required:"true" usage:"addresses of the machines: single ones and ranges such as 10.0.0.5-10.0.0.20"`
	MaxRange int64    `flag:"max-range-ips" env:"MAX_RANGE_IPS" default:"100" min:"1" max:"65536" usage:"most addresses that one range may have"`

	User         string `flag:"ssh-username" env:"SSH_USERNAME" default:"peerpod" usage:"user on the machines, for SFTP"`
	PublicKey    string `flag:"ssh-pub-key" env:"SSH_PUB_KEY_PATH" default:"/root/.ssh/id_rsa.pub" usage:"public key; if the file is there it must be that of the private key"`
	PrivateKey   string `flag:"ssh-priv-key" env:"SSH_PRIV_KEY_PATH" default:"/root/.ssh/id_rsa" usage:"private key file"`
	Timeout      int64  `flag:"ssh-timeout" env:"SSH_TIMEOUT" default:"30" unit:"s" min:"1" max:"3600" usage:"longest that connecting to a machine may take"`
	Port         int64  `flag:"byom-ssh-port" env:"BYOM_SSH_PORT" default:"22" min:"1" max:"65535" usage:"port of the machines' SSH servers"`
	AllowlistDir string `flag:"ssh-host-key-allowlist-dir" env:"SSH_HOST_KEY_ALLOWLIST_DIR" usage:"folder with files of public host keys: machines with other keys are refused. Without it every host key is taken"`

	Namespace  string `flag:"pool-namespace" env:"POOL_NAMESPACE" usage:"namespace of the pool's ConfigMap; default that of the pod this runs in"`
	ConfigMap  string `flag:"pool-configmap-name" env:"POOL_CONFIGMAP_NAME" default:"byom-ip-pool-state" usage:"ConfigMap that says which machine is whose"`
	Kubeconfig string `flag:"byom-kubeconfig" env:"KUBECONFIG" usage:"file that says how to reach the cluster from outside of it"`

	Arch      string        `flag:"byom-arch" env:"BYOM_ARCH" default:"amd64" choices:"amd64,arm64,s390x,ppc64le" usage:"architecture of the machines"`
	CPUs      int64         `flag:"byom-cpu" env:"BYOM_CPU" default:"0" min:"0" max:"4096" usage:"CPUs of a machine: pods that ask for more are refused; 0 is unknown"`
	Memory    int64         `flag:"byom-memory" env:"BYOM_MEMORY" default:"0" unit:"MiB" min:"0" max:"33554432" usage:"memory of a machine: pods that ask for more are refused; 0 is unknown"`
	ResetWait time.Duration `flag:"byom-reset-wait" env:"BYOM_RESET_WAIT" default:"2m" usage:"how long a creation waits for machines that reboot when no other is free"`
}

// NewManager returns a manager with nothing set.
func NewManager() *config.Manager[Config] {
	return config.New(Name, func(c Config) (provider.Provider, error) { return New(c) }).NoImport()
}

// bad returns the error about a setting, by the name of its flag.
func bad(flag, format string, args ...any) error {
	return config.Wrong[Config](flag, format, args...)
}

// identity is what the settings' files hold.
type identity struct {
	signer   ssh.Signer
	hostKeys []ssh.PublicKey // none means all
}

// validate reports everything that is wrong whatever cluster and machines say.
func (c Config) validate() ([]netip.Addr, *identity, error) {
	pool, poolErr := parsePool(c.PoolIPs, c.MaxRange)
	id := &identity{}
	var keyErr, hostErr error
	id.signer, keyErr = readKey(c.PrivateKey, c.PublicKey)
	id.hostKeys, hostErr = readHostKeys(c.AllowlistDir)
	errs := []error{config.Check(c), poolErr, keyErr, hostErr}
	for _, text := range []struct{ flag, value string }{{"ssh-username", c.User}, {"pool-configmap-name", c.ConfigMap}} {
		if text.value == "" {
			errs = append(errs, bad(text.flag, "it is empty"))
		}
	}
	if c.ResetWait < 0 {
		errs = append(errs, bad("byom-reset-wait", "%v is less than nothing", c.ResetWait))
	}
	return pool, id, errors.Join(errs...)
}

// parsePool returns the addresses in the order in which they are given away.
func parsePool(texts []string, maxRange int64) ([]netip.Addr, error) {
	var pool []netip.Addr
	seen := map[netip.Addr]bool{}
	for _, text := range texts {
		list, err := parseRange(text, maxRange)
		if err != nil {
			return nil, bad("vm-pool-ips", "%v", err)
		}
		for _, addr := range list {
			if seen[addr] {
				return nil, bad("vm-pool-ips", "%s is there twice", addr)
			}
			seen[addr] = true
			pool = append(pool, addr)
		}
	}
	return pool, nil
}

func parseRange(text string, maxRange int64) ([]netip.Addr, error) {
	from, to, isRange := strings.Cut(text, "-")
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	if err != nil {
		return nil, fmt.Errorf("%q is neither an address nor a range such as 10.0.0.5-10.0.0.20", text)
	}
	if !isRange {
		return []netip.Addr{first}, nil
	}
	last, err := netip.ParseAddr(strings.TrimSpace(to))
	if err != nil || last.Is4() != first.Is4() || last.Less(first) {
		return nil, fmt.Errorf("%q is not a range such as 10.0.0.5-10.0.0.20", text)
	}
	var list []netip.Addr
	for addr := first; !last.Less(addr); addr = addr.Next() {
		if list = append(list, addr); int64(len(list)) > maxRange {
			return nil, fmt.Errorf("range %s has more than %d addresses (-max-range-ips, MAX_RANGE_IPS)", text, maxRange)
		}
	}
	return list, nil
}

func readKey(privateFile, publicFile string) (ssh.Signer, error) {
	data, err := os.ReadFile(privateFile)
	if err != nil {
		return nil, bad("ssh-priv-key", "%v", err)
	}
	signer, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return nil, bad("ssh-priv-key", "%s is not a private key without passphrase", privateFile)
	}
	text, err := os.ReadFile(publicFile)
	if errors.Is(err, os.ErrNotExist) {
		return signer, nil
	}
	if err != nil {
		return nil, bad("ssh-pub-key", "%v", err)
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil || string(public.Marshal()) != string(signer.PublicKey().Marshal()) {
		return nil, bad("ssh-pub-key", "%s is not the public key of -ssh-priv-key (SSH_PRIV_KEY_PATH) %s", publicFile, privateFile)
	}
	return signer, nil
}

func readHostKeys(folder string) ([]ssh.PublicKey, error) {
	if folder == "" {
		return nil, nil
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, bad("ssh-host-key-allowlist-dir", "%v", err)
	}
	var keys []ssh.PublicKey
	for _, file := range files {
		if file.IsDir() || strings.HasPrefix(file.Name(), ".") {
			continue // ..data and such of a mounted ConfigMap
		}
		data, err := os.ReadFile(folder + "/" + file.Name())
		if err != nil {
			return nil, bad("ssh-host-key-allowlist-dir", "%v", err)
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
			if err != nil {
				return nil, bad("ssh-host-key-allowlist-dir", "%s: a line is not a public key", file.Name())
			}
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, bad("ssh-host-key-allowlist-dir", "%s holds no key", folder)
	}
	return keys, nil
}

func logger() *slog.Logger { return slog.With("provider", Name) }
