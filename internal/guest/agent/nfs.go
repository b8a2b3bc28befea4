// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

const (
	// driverNFS is not one of Kata's: Source is SERVER:EXPORT, Options are those of the kernel, with addr=.
	driverNFS = "nfs"
	// networkVolumes is the folder in Config.Root of what it mounts. Nothing in it is ever removed: a mount
	// that is still there would be emptied on the server.
	networkVolumes = "network-volumes"

	// nfsReach is how long a connection to the server may take to be made.
	nfsReach = 10 * time.Second
	// nfsPatience is how long a call waits for a mount: less than kubelet does for the container
	// (runtimeRequestTimeout is 2 minutes).
	nfsPatience = 100 * time.Second
	// nfsFlush is how long the pod's end waits for a server to take what was written; callers wait for a minute.
	nfsFlush = 40 * time.Second

	nfsPort = "2049" // assigned by IANA
	// nfsClientID is what tells clients of NFS version 4 apart where it is not empty, with the host name (Linux'
	// Documentation/filesystems/nfs/client-identifier.rst).
	nfsClientID = "/sys/module/nfs/parameters/nfs4_unique_id"
)

// mountNFS mounts in the pod's network namespace. If it takes longer than the caller waits that is an error, and
// it goes on: who asks again gets what came of it.
func (a *Agent) mountNFS(target string, s *agent.Storage) error {
	if filepath.Dir(target) != filepath.Join(a.cfg.Root, networkVolumes) {
		return fmt.Errorf("a network file system cannot be mounted there, but in %s", filepath.Join(requestRoot, networkVolumes))
	}
	done := make(chan error, 1)
	go func() {
		a.nfs.Lock()
		defer a.nfs.Unlock()
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		done <- a.mountNFSHere(target, s)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(nfsPatience):
		return fmt.Errorf("%s is not mounted yet, after %s: its server does not answer; the container can be created when it does", s.GetSource(), nfsPatience)
	}
}

func (a *Agent) mountNFSHere(target string, s *agent.Storage) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if there, err := mountinfo.Mounted(target); there || err != nil {
		return err
	}
	if err := prepareNFS(s.GetFstype()); err != nil {
		return err
	}
	if a.hasPodNetNS() {
		ns, err := netns.GetFromPath(a.cfg.PodNetNS)
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter the pod's network namespace: %w", err)
		}
	}
	if server := nfsServer(s.GetOptions()); server != "" {
		conn, err := net.DialTimeout("tcp", server, nfsReach)
		if err != nil {
			return fmt.Errorf("%s: its server cannot be reached from the pod's network: %w", s.GetSource(), err)
		}
		conn.Close()
	}
	flags, data := mountOptions(s.GetOptions())
	return explainNFS(s, unix.Mount(s.GetSource(), target, s.GetFstype(), flags, data))
}

// prepareNFS has the kernel load its NFS, and gives this VM a name of its own: servers take clients of
// one name for one that has started again, and drop the locks and open files of the first. Pods of one name
// are in several namespaces.
func prepareNFS(fstype string) error {
	if fstype != "nfs" && fstype != "nfs4" {
		return fmt.Errorf("file system %.40q is not NFS", fstype)
	}
	fd, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("the kernel of this VM image has no NFS: use an image of this version of Outrigger: %w", os.NewSyscallError("fsopen", err))
	}
	unix.Close(fd)
	name, err := os.ReadFile(nfsClientID)
	if err != nil || strings.TrimSpace(string(name)) != "" {
		return err
	}
	return os.WriteFile(nfsClientID, []byte(rand.Text()), 0)
}

// nfsServer returns the address of the server; empty if its port has to be asked for, which the kernel does.
func nfsServer(options []string) string {
	value := map[string]string{}
	for _, option := range options {
		name, v, _ := strings.Cut(option, "=")
		value[name] = v
	}
	port := value["port"]
	if strings.HasPrefix(value["vers"], "4") {
		port = cmp.Or(port, nfsPort)
	}
	if port == "" {
		return ""
	}
	return net.JoinHostPort(value["addr"], port)
}

// explainNFS says what an error of mount(2) means (Linux' fs/nfs).
func explainNFS(s *agent.Storage, err error) error {
	var text string
	switch err {
	case nil:
		return nil
	case unix.ENOENT:
		text = "the server has no such export"
	case unix.EACCES, unix.EPERM:
		text = "the server refuses this client: it sees the pod's address, and not the node's"
	case unix.ECONNREFUSED, unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.ENETUNREACH:
		text = "its server cannot be reached from the pod's network"
	case unix.EPROTONOSUPPORT:
		text = "the server does not have this version of NFS"
	case unix.EINVAL:
		text = "the VM's kernel does not know one of the options, or the server does not"
	case unix.ENOTDIR:
		text = "what the server exports is not a folder"
	default:
		text = "it cannot be mounted"
	}
	return fmt.Errorf("%s (options %s): %s: %w", s.GetSource(), strings.Join(s.GetOptions(), ","), text, os.NewSyscallError("mount", err))
}

// unmountNFS has all written that the pod has written, as far as the servers take it. A mount ends
// with the VM if its server does not.
func (a *Agent) unmountNFS(paths []string) error {
	done := make(chan error, len(paths))
	for _, path := range paths {
		go func() { done <- flushNFS(path) }()
	}
	late := time.After(nfsFlush)
	var errs []error
	for range paths {
		select {
		case err := <-done:
			errs = append(errs, err)
		case <-late:
			a.log.Error("the server of a network file system does not answer: what the pod wrote last may be lost", "after", nfsFlush)
			return errors.Join(errs...)
		}
	}
	return errors.Join(errs...)
}

func flushNFS(path string) error {
	folder, err := os.Open(path)
	if err == nil {
		err = os.NewSyscallError("syncfs", unix.Syncfs(int(folder.Fd())))
		folder.Close()
	}
	if unmountErr := unix.Unmount(path, unix.MNT_DETACH); unmountErr != nil && unmountErr != unix.EINVAL && !errors.Is(unmountErr, fs.ErrNotExist) {
		err = errors.Join(err, &os.PathError{Op: "unmount", Path: path, Err: unmountErr})
	}
	return err
}
