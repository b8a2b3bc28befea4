// SPDX-License-Identifier: Apache-2.0

// Command probe stands in for the guest's programs when the image is tested:
// it says on the console what it finds.
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "child" {
		// Ends at once; its own child, ended too, becomes PID 1's.
		_ = exec.Command(os.Args[0], "grandchild").Start()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "grandchild" {
		return
	}
	switch filepath.Base(os.Args[0]) {
	case "process-user-data":
		fmt.Println("PROBE args", os.Args[1:], "user-data", strings.TrimSpace(read("/media/cidata/user-data")))
	case "agent-protocol-forwarder":
		_, err := net.Listen("tcp", ":15150")
		fmt.Println("PROBE forwarder", err)
		time.Sleep(time.Hour)
	case "inner":
		host, _ := os.Hostname()
		tpm, _ := filepath.Glob("/dev/tpm*")
		if len(tpm) > 0 {
			host = fmt.Sprint(host, " with ", tpm)
		}
		fmt.Println("in the container as pid", os.Getpid(), "on", host)
	default:
		agent()
	}
}

func read(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// agent ends once to see that it is started again, then reports.
func agent() {
	const marker = "/run/agent-was-here"
	if os.Mkdir(marker, 0o755) == nil {
		os.Exit(7)
	}
	if err := os.MkdirAll("/run/kata-containers", 0o755); err == nil {
		_, err = net.Listen("unix", "/run/kata-containers/agent.sock")
		fmt.Println("PROBE socket", err)
	}
	host, _ := os.Hostname()
	fmt.Println("PROBE hostname", host)
	fmt.Println("PROBE controllers", strings.Fields(read("/sys/fs/cgroup/cgroup.subtree_control")))
	fmt.Println("PROBE resolv", strings.Fields(read("/etc/resolv.conf")))
	fmt.Println("PROBE scratch", fstype("/run/kata-containers"))
	network()
	fmt.Println("PROBE nfnetlink", modprobe())
	orphan()
	fmt.Println("PROBE container", container())
	measured()
	fmt.Println("PROBE tsm", os.Mkdir("/sys/kernel/config/tsm/report/probe", 0o755))
	fmt.Println("PROBE done")
	time.Sleep(time.Hour)
}

// measured reports a TPM: its devices, the registers that boots extend and the firmware's log, of which
// events of these registers are shown.
func measured() {
	if read("/sys/class/tpm/tpm0/tpm_version_major") != "2\n" {
		return
	}
	for _, dev := range []string{"/dev/tpm0", "/dev/tpmrm0"} {
		_, err := os.Stat(dev)
		fmt.Println("PROBE tpm", dev, err)
	}
	for pcr := range 16 {
		fmt.Printf("PROBE pcr %d %s\n", pcr, strings.ToLower(strings.TrimSpace(read(fmt.Sprint("/sys/class/tpm/tpm0/pcr-sha256/", pcr)))))
	}
	log := read("/sys/kernel/security/tpm0/binary_bios_measurements")
	fmt.Println("PROBE eventlog", base64.StdEncoding.EncodeToString([]byte(log)))
}

func fstype(dir string) string {
	for line := range strings.Lines(read("/proc/mounts")) {
		if f := strings.Fields(line); f[1] == dir {
			return f[2]
		}
	}
	return "none"
}

func network() {
	// DHCP answers while the agent starts.
	for range 300 {
		if strings.Count(read("/proc/net/route"), "\n") > 1 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	ifs, _ := net.Interfaces()
	for _, i := range ifs {
		all, _ := i.Addrs()
		// The link-local address comes at a time of its own.
		addrs := slices.DeleteFunc(all, func(a net.Addr) bool { return strings.HasPrefix(a.String(), "fe80:") })
		fmt.Println("PROBE nic", i.Name, i.MTU, addrs)
	}
	for line := range strings.Lines(read("/proc/net/route")) {
		if f := strings.Fields(line); f[0] != "Iface" {
			fmt.Println("PROBE route", f[0], f[1], f[2])
		}
	}
}

// modprobe makes the kernel ask for nfnetlink.
func modprobe() string {
	const netfilter = 12
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW, netfilter)
	if err != nil {
		return err.Error()
	}
	syscall.Close(fd)
	return "ok"
}

// orphan leaves children to PID 1 and reports how many stay as zombies.
func orphan() {
	for range 5 {
		_ = exec.Command(os.Args[0], "child").Run()
	}
	for range 100 {
		if zombiesOf(1) == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Println("PROBE zombies", zombiesOf(1))
}

func zombiesOf(parent int) int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	n := 0
	for _, s := range stats {
		_, after, _ := strings.Cut(read(s), ") ")
		var state string
		var ppid int
		if _, err := fmt.Sscan(after, &state, &ppid); err == nil && state == "Z" && ppid == parent {
			n++
		}
	}
	return n
}

// container runs one, by its runtime's default specification.
func container() string {
	const bundle = "/run/bundle"
	for _, d := range []string{"/rootfs/proc", "/rootfs/bin"} {
		_ = os.MkdirAll(bundle+d, 0o755)
	}
	self, _ := os.ReadFile("/proc/self/exe")
	_ = os.WriteFile(bundle+"/rootfs/bin/inner", self, 0o755)
	spec := exec.Command("crun", "spec")
	spec.Dir = bundle
	if out, err := spec.CombinedOutput(); err != nil {
		return fmt.Sprint(err, string(out))
	}
	var config map[string]any
	_ = json.Unmarshal([]byte(read(bundle+"/config.json")), &config)
	process := config["process"].(map[string]any)
	process["terminal"] = false
	process["args"] = []string{"/bin/inner"}
	data, _ := json.Marshal(config)
	_ = os.WriteFile(bundle+"/config.json", data, 0o644)
	out, err := exec.Command("crun", "run", "--bundle", bundle, "c1").CombinedOutput()
	return fmt.Sprint(strings.TrimSpace(string(out)), " ", err)
}
