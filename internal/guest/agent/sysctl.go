// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// setPodSysctls sets what a pod asks for (securityContext.sysctls), which runtimes
// pass with its pause container: in the pod's namespaces what belongs to them,
// in the VM the rest, since the VM is the pod's alone.
func (a *Agent) setPodSysctls(sb *sandbox, sysctls map[string]string) error {
	if len(sysctls) == 0 {
		return nil
	}
	done := make(chan error)
	go func() {
		// The thread stays in the pod's namespaces and ends with this goroutine.
		runtime.LockOSThread()
		done <- a.setSysctlsWithin(sb, sysctls)
	}()
	return <-done
}

func (a *Agent) setSysctlsWithin(sb *sandbox, sysctls map[string]string) error {
	join := []string{namespace(sb.pause, "ipc"), namespace(sb.pause, "uts")}
	if a.hasPodNetNS() { // else the VM's network is the pod's
		join = append(join, a.cfg.PodNetNS)
	}
	for _, path := range join {
		if err := enter(path); err != nil {
			return fmt.Errorf("the pod's sysctls: %w", err)
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		errs = append(errs, a.setSysctl(name, sysctls[name]))
	}
	return errors.Join(errs...)
}

// enter moves this thread into a namespace.
func enter(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), 0); err != nil {
		return fmt.Errorf("enter %s: %w", path, err)
	}
	return nil
}

// setSysctl writes one sysctl of proc_sys(5), in the namespaces of the calling
// thread.
func (a *Agent) setSysctl(name, value string) error {
	file := filepath.Join(a.cfg.ProcSys, sysctlPath(name))
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		return fmt.Errorf("sysctl %s=%s: %w", name, value, err)
	}
	return nil
}

// sysctlPath knows both notations of sysctl(8): with dots, where a slash stands
// for a dot within a part, and with slashes.
func sysctlPath(name string) string {
	first := strings.IndexAny(name, "./")
	if first < 0 || name[first] == '/' {
		return filepath.Clean("/" + name)
	}
	return filepath.Clean("/" + strings.NewReplacer(".", "/", "/", ".").Replace(name))
}

// fixSysctls leaves to the runtime what belongs to a namespace of the container. The
// rest is the VM's, which is the pod's alone, so it is set here; that of the
// network too where the pod has none of its own.
func (a *Agent) fixSysctls(spec *oci.Spec) error {
	own := make(map[string]string)
	for name, value := range spec.Linux.Sysctl {
		if namespaced(name) && (!isNet(name) || hasNamespace(spec, oci.NetworkNamespace)) {
			own[strings.ReplaceAll(name, "/", ".")] = value
		} else if err := a.setSysctl(name, value); err != nil {
			return err
		}
	}
	spec.Linux.Sysctl = own
	return nil
}

func isNet(sysctl string) bool { return strings.HasPrefix(sysctlPath(sysctl), "/net/") }

// namespaced reports whether the runtime sets the sysctl inside the container: namespaces(7),
// ipc_namespaces(7).
func namespaced(sysctl string) bool {
	path := sysctlPath(sysctl)
	for _, prefix := range []string{"/net/", "/fs/mqueue/", "/kernel/msg", "/kernel/shm"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return path == "/kernel/sem" || path == "/kernel/domainname" || path == "/kernel/hostname"
}
