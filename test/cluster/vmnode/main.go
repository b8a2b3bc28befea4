// SPDX-License-Identifier: Apache-2.0

// vmnode makes a node of Kubernetes of a VM that boots the pod VM image: it runs there in place of the pod's
// agent, and starts containerd, the node plugin of the CSI driver and kubelet. What they need is in /node, and
// what they say is on the console.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/test/cluster/registrar"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "make-writable" { // of a container, which gives an initramfs to its provider
		if err := syscall.Mount("", "/", "", syscall.MS_REMOUNT|syscall.MS_BIND, ""); err != nil {
			log.Fatal(err)
		}
		return
	}
	if filepath.Base(os.Args[0]) != "podvm-agent" {
		wait() // it is in place of the forwarder
	}
	if err := run(); err != nil {
		log.Print(err)
	}
	wait() // else it is started again
}

func wait() {
	for {
		time.Sleep(time.Hour)
	}
}

func run() error {
	name, err := os.ReadFile("/node/name")
	if err != nil {
		return err
	}
	os.Setenv("PATH", "/node/bin:/usr/bin:/usr/sbin")
	os.Setenv("LD_LIBRARY_PATH", "/node/lib")
	// An overlay cannot be on the initramfs.
	for _, dir := range []string{"/var/lib/containerd", "/var/lib/kubelet"} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), syscall.Mount("none", dir, "tmpfs", 0, "size=90%")); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if err := syscall.Mount("", "/", "", syscall.MS_SHARED|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("share mounts with pods: %w", err)
	}
	start("containerd", "-c", "/node/containerd.toml")
	for err := errors.New(""); err != nil; {
		time.Sleep(100 * time.Millisecond)
		_, err = os.Stat("/run/containerd/containerd.sock")
	}
	if out, err := exec.Command("ctr", "-n", "k8s.io", "images", "import", "/node/images.tar").CombinedOutput(); err != nil {
		return fmt.Errorf("import images: %w: %s", err, out)
	}
	const socket = "/run/csi.sock"
	if _, err := registrar.Serve(registrar.Folder, "csi.outrigger.dev", socket); err != nil {
		return err
	}
	start("kubelet", "--config=/node/kubelet.yaml", "--kubeconfig=/node/kubelet.kubeconfig", "--hostname-override="+string(name), "--cert-dir=/var/lib/kubelet/pki",
		// As of one whose instance the cloud controller manager has still to find.
		"--register-with-taints=node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule")
	start("outrigger-csi", "-mode=node", "-cloud-provider=qemu", "-endpoint=unix://"+socket, "-kubeconfig=/node/csi.kubeconfig", "-node-name="+string(name), "-metrics-bind-address=0", "-health-probe-bind-address=0")
	return nil
}

// start keeps a program running: the driver's ends where there is no Node yet.
func start(name string, args ...string) {
	go func() {
		for {
			cmd := exec.Command(name, args...)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			log.Printf("%s has ended: %v", name, cmd.Run())
			time.Sleep(time.Second)
		}
	}()
}
