// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// TestFlagsOfDocker: what reaches the pod's agent.
func TestFlagsOfDocker(t *testing.T) {
	s := newStand(t)
	s.detached("p1", "sleep 1000", "--read-only", "--cap-drop", "ALL", "--cap-add", "net_admin,CAP_CHOWN", "--label", "a=b", "-l", "c",
		"-v", "data:/data", "-v", s.root[:len(s.root)-2]+":/host:ro", "--tmpfs", "/t:size=1m", "--entrypoint", "/bin/sh", "--stop-signal", "USR1", "--shm-size", "1MiB")
	a := s.node.Agents()[0]
	for _, req := range a.Created() {
		if !req.OCI.Root.Readonly {
			t.Error("the root file system is writable")
		}
		want := []string{"CAP_CHOWN", "CAP_NET_ADMIN"}
		if diff := cmp.Diff(want, req.OCI.Process.Capabilities.Effective); diff != "" {
			t.Error(diff)
		}
		mounts := map[string]string{}
		for _, m := range req.OCI.Mounts {
			mounts[m.Destination] = m.Type + " " + strings.Join(m.Options, ",")
		}
		for target, want := range map[string]string{
			"/data": "local rbind,rprivate,rw", "/host": "bind rbind,rprivate,ro", "/t": "tmpfs nosuid,nodev,mode=1777,rw,size=1048576",
		} {
			if mounts[target] != want {
				t.Errorf("%s is %q, want %q", target, mounts[target], want)
			}
		}
	}
	if options := a.Sandbox().Storages[0].Options; !slices.Contains(options, "size=1048576") {
		t.Errorf("shm %v", options)
	}
	s.run("exec", "p1", "true")
	if execs := a.Execs(); len(execs[0].Process.Capabilities.Effective) != 2 {
		t.Errorf("exec has %v", execs[0].Process.Capabilities.Effective)
	}
	for format, want := range map[string]string{
		"{{.State.Running}} {{.Config.Labels.a}} {{.HostConfig.ReadonlyRootfs}} {{.Config.StopSignal}} {{.Path}}": "true b true USR1 /bin/sh\n",
		"{{json .HostConfig.Capabilities}}": `["CAP_CHOWN","CAP_NET_ADMIN"]` + "\n",
	} {
		if _, stdout, stderr := s.run("inspect", "-f", format, "p1"); stdout != want {
			t.Errorf("inspect %s: %q, want %q: %s", format, stdout, want, stderr)
		}
	}
	var all []map[string]any
	_, stdout, _ := s.run("inspect", "p1")
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || all[0]["Name"] != "p1" {
		t.Errorf("inspect: %v\n%s", err, stdout)
	}
}

func TestEntrypoint(t *testing.T) {
	s := newStand(t)
	for _, row := range []struct {
		flags, command []string
		want           string
	}{
		{[]string{"--entrypoint", "/bin/echo"}, []string{"a", "b"}, "a b\n"}, // without the image's command
		{[]string{"--entrypoint", "/bin/echo"}, nil, "\n"},
		{[]string{"--entrypoint", ""}, []string{"/bin/echo", "c"}, "c\n"},
		{[]string{"--entrypoint="}, nil, "125"},
	} {
		args := append(append([]string{"run", "-q", "--network", "none"}, row.flags...), s.image)
		code, stdout, stderr := s.run(append(args, row.command...)...)
		if code != 0 {
			stdout = fmt.Sprint(code)
		}
		if stdout != row.want {
			t.Errorf("%v: %q, want %q: %s", row.flags, stdout, row.want, stderr)
		}
	}
}

func TestVolumeIsACopyAndSaysSo(t *testing.T) {
	s := newStand(t)
	dir := t.TempDir()
	_, _, stderr := s.run("run", "--network", "none", "-v", dir+":/x", s.image)
	if !strings.Contains(stderr, "gets a copy of "+dir) {
		t.Errorf("stderr %q", stderr)
	}
}

func TestPsFiltersAndFormats(t *testing.T) {
	s := newStand(t)
	s.detached("web", "sleep 1000", "--label", "app=x")
	s.detached("job", "exit 3", "--rm=false", "--label", "app=y")
	eventually(t, "the job has ended", func() bool { _, out, _ := s.run("ps", "-q", "-f", "exited=3"); return out != "" })
	_, id, _ := s.run("inspect", "-f", "{{.Id}}", "web")
	for line, want := range map[string]string{
		"ps --format {{.Names}}":                                "web\n",
		"ps -a --format {{.Names}}/{{.State}}":                  "web/running\njob/exited\n",
		"ps -q":                                                 id[:12] + "\n",
		"ps -q --no-trunc":                                      id,
		"ps --filter label=app --format {{.Names}}":             "web\n",
		"ps -a --filter label=app=y --format {{.Names}}":        "job\n",
		"ps --filter status=exited --format {{.Label|printf}}":  "125",
		"ps -a -f name=we -f name=jo --format {{.Names}}":       "web\njob\n",
		"ps -a -f name=we -f status=exited --format {{.Names}}": "",
		"ps -f id=" + id[:4] + " --format json":                 `"Names":"web"`,
		"ps -f colour=red":                                      "125",
	} {
		code, stdout, stderr := s.run(strings.Fields(line)...)
		if code != 0 {
			stdout = fmt.Sprint(code)
		}
		if stdout != want && (!strings.HasSuffix(line, "json") || !strings.Contains(stdout, want)) {
			t.Errorf("%s: %q, want %q: %s", line, stdout, want, stderr)
		}
	}
	if _, stdout, _ := s.run("ps", "--filter", "status=exited", "--format", `{{.Names}}={{.Label "app"}}`); stdout != "job=y\n" {
		t.Errorf("a label: %q", stdout)
	}
	if _, stdout, _ := s.run("ps", "--format", `table {{.Names}}\t{{.Labels}}`); stdout != "NAMES   LABELS\nweb     app=x\n" {
		t.Errorf("a table: %q", stdout)
	}
}

func TestStopKillAndWait(t *testing.T) {
	s := newStand(t)
	for _, row := range []struct {
		name, script, line, want string
	}{
		{"gentle", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done", "stop gentle", "5"},
		{"hard", "trap '' TERM; echo up; while :; do sleep 0.05; done", "stop -t 1 hard", "137"},
		{"at-once", "trap '' TERM; echo up; while :; do sleep 0.05; done", "stop --time=0 at-once", "137"},
		{"killed", "trap '' TERM; echo up; while :; do sleep 0.05; done", "kill killed", "137"},
		{"other", "trap 'exit 6' USR1; echo up; while :; do sleep 0.05; done", "kill -s SIGUSR1 other", "6"},
		{"image", "trap 'exit 7' USR2; echo up; while :; do sleep 0.05; done", "stop image", "7"},
	} {
		t.Run(row.name, func(t *testing.T) {
			flags := []string{"--rm=false"}
			if row.name == "image" {
				flags = append(flags, "--stop-signal", "usr2")
			}
			s.detached(row.name, row.script, flags...)
			eventually(t, "it is up", func() bool { _, out, _ := s.run("logs", row.name); return out == "up\n" })
			waited := make(chan string)
			go func() {
				_, out, _ := s.run("wait", row.name)
				waited <- out
			}()
			if code, stdout, stderr := s.run(strings.Fields(row.line)...); code != 0 || stdout != row.name+"\n" {
				t.Errorf("%s: code %d, %q, %s", row.line, code, stdout, stderr)
			}
			if got := <-waited; got != row.want+"\n" {
				t.Errorf("wait: %q, want %s", got, row.want)
			}
			if code, stdout, _ := s.run("wait", row.name); code != 0 || stdout != row.want+"\n" {
				t.Errorf("wait afterwards: %d, %q", code, stdout)
			}
			if code, _, stderr := s.run("stop", row.name); code != 0 {
				t.Errorf("stop of what has stopped: %d, %s", code, stderr)
			}
		})
	}
}

// TestWaitForAPodThatIsNotKept: its record goes with it.
func TestWaitForAPodThatIsNotKept(t *testing.T) {
	s := newStand(t)
	s.detached("p1", "exec sleep 1000")
	waited := make(chan string)
	go func() {
		_, out, stderr := s.run("wait", "p1")
		waited <- out + stderr
	}()
	eventually(t, "wait waits", func() bool {
		files, _ := filepath.Glob("/proc/self/fd/*")
		return slices.ContainsFunc(files, func(fd string) bool {
			file, _ := os.Readlink(fd)
			return strings.HasPrefix(file, s.root) && strings.HasSuffix(file, ".exit")
		})
	})
	s.run("kill", "p1")
	if got := <-waited; got != "137\n" {
		t.Errorf("wait: %q", got)
	}
}

func TestTop(t *testing.T) {
	s := newStand(t)
	s.detached("p1", "sleep 1000")
	if code, stdout, stderr := s.run("top", "p1", "-o", "pid"); code != 0 || !strings.Contains(stdout, "PID") {
		t.Errorf("code %d, %q, %s", code, stdout, stderr)
	}
}

func TestPublish(t *testing.T) {
	s := newStand(t)
	s.net.address = "127.0.0.1/8"
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			data, _ := io.ReadAll(c) // the client's half must end
			fmt.Fprintf(c, "got %s", data)
			c.Close()
		}
	}()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			udp.WriteTo(append([]byte("got "), buf[:n]...), from)
		}
	}()
	tcpPort, udpPort := portOf(tcp.Addr()), portOf(udp.LocalAddr())
	done := make(chan int)
	go func() { // in this process: a monitor has the real network
		code, _, _ := s.run(s.sh("exec sleep 1000", "--name", "web", "-p", "127.0.0.1::"+tcpPort, "-p", "127.0.0.1:20000-40000:"+udpPort+"/udp")...)
		done <- code
	}()
	var at, at2 string
	eventually(t, "the ports are open", func() bool {
		_, state, _ := s.run("ps", "--format", "{{.State}}")
		_, at, _ = s.run("port", "web", tcpPort)
		_, at2, _ = s.run("port", "web", udpPort+"/udp")
		return state == "running\n"
	})
	at, at2 = strings.TrimSpace(at), strings.TrimSpace(at2)
	check := func() {
		t.Helper()
		for network, address := range map[string]string{"tcp": at, "udp": at2} {
			c, err := net.Dial(network, address)
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			fmt.Fprint(c, "hello")
			if half, ok := c.(*net.TCPConn); ok {
				half.CloseWrite()
			}
			buf := make([]byte, 100)
			n, err := c.Read(buf)
			if string(buf[:n]) != "got hello" {
				t.Errorf("%s: %q, %v", network, buf[:n], err)
			}
			c.Close()
		}
	}
	check()
	if _, stdout, _ := s.run("ps", "--format", "{{.Ports}}"); stdout != at+"->"+tcpPort+"/tcp, "+at2+"->"+udpPort+"/udp\n" {
		t.Errorf("ps: %q", stdout)
	}
	if _, stdout, _ := s.run("port", "web"); stdout != tcpPort+"/tcp -> "+at+"\n"+udpPort+"/udp -> "+at2+"\n" {
		t.Errorf("port: %q", stdout)
	}
	if code, _, stderr := s.run("port", "web", "1"); code != 125 || !strings.Contains(stderr, "--publish 1") {
		t.Errorf("a port that is not published: %d, %s", code, stderr)
	}
	code, _, stderr := s.run("run", "-q", "-p", at+":80", s.image)
	if code != 125 || !strings.Contains(stderr, "port "+portName(at)+" of this host is in use by pod web") {
		t.Errorf("a port that is in use: %d, %s", code, stderr)
	}
	code, _, stderr = s.run("run", "-q", "-p", tcp.Addr().String()+":80", s.image)
	if code != 125 || !strings.Contains(stderr, "of this host is in use:") {
		t.Errorf("a port that another program uses: %d, %s", code, stderr)
	}
	s.run("kill", "web")
	if code := <-done; code != 137 {
		t.Errorf("code %d", code)
	}
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("the port is open after the pod's end")
	}
}

func portOf(a net.Addr) string { return portName(a.String()) }

func portName(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

func TestCopy(t *testing.T) {
	s := newStand(t)
	s.detached("p1", "sleep 1000")
	// The fake agent's containers are this host's.
	guest, host := t.TempDir(), t.TempDir()
	write := func(file, text string) {
		t.Helper()
		os.MkdirAll(filepath.Dir(file), 0o755)
		if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	write(host+"/src/a", "A")
	write(host+"/src/deep/b", "B")
	os.Symlink("a", host+"/src/link")
	write(host+"/one", "1")
	os.Mkdir(guest+"/there", 0o755)
	for _, row := range []struct{ from, to, file, want string }{
		{host + "/one", "p1:" + guest + "/two", guest + "/two", "1"},
		{host + "/one", "p1:" + guest + "/there", guest + "/there/one", "1"},
		{host + "/src", "p1:" + guest + "/new", guest + "/new/deep/b", "B"},
		{host + "/src", "p1:" + guest + "/there/", guest + "/there/src/link", "A"},
		{host + "/src/.", "p1:" + guest + "/there", guest + "/there/deep/b", "B"},
		{"p1:" + guest + "/two", host + "/back", host + "/back", "1"},
		{"p1:" + guest + "/two", host, host + "/two", "1"},
		{"p1:" + guest + "/new", host + "/got", host + "/got/deep/b", "B"},
		{"p1:" + guest + "/new", host, host + "/new/link", "A"},
		{"p1:" + guest + "/new/.", host + "/got2", host + "/got2/a", "A"},
	} {
		code, _, stderr := s.run("cp", row.from, row.to)
		got, err := os.ReadFile(row.file)
		if code != 0 || err != nil || string(got) != row.want {
			t.Errorf("cp %s %s: code %d, %v, %q: %s", row.from, row.to, code, err, got, stderr)
		}
	}
	if code, _, stderr := s.run("cp", "p1:"+guest+"/nothing", host); code != 125 || !strings.Contains(stderr, "tar in pod p1 ended with") {
		t.Errorf("what is not there: %d, %s", code, stderr)
	}
	if code, _, stderr := s.run("cp", host+"/nothing", "p1:"+guest); code != 125 || !strings.Contains(stderr, "no such file") {
		t.Errorf("what is not here: %d, %s", code, stderr)
	}
	evil := filepath.Join(guest, "e\x1b[2J"+strings.Repeat("x", 200))
	write(evil, "x")
	os.MkdirAll(host+"/there/"+filepath.Base(guest)+"/"+filepath.Base(evil), 0o755) // a folder is in the way
	if code, _, stderr := s.run("cp", "p1:"+guest, host+"/there"); code != 125 || strings.ContainsRune(stderr, 0x1b) {
		t.Errorf("a name with control characters: %d, %q", code, stderr)
	}
	if code, stdout, _ := s.run("cp", "p1:"+guest+"/two", "-"); code != 0 || !strings.Contains(stdout, "two") {
		t.Errorf("to standard output: %d", code)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestCopyToAFullDisk: a part of an archive is not a success, and the rest of it is not waited for.
func TestCopyToAFullDisk(t *testing.T) {
	s := newStand(t)
	s.detached("p1", "sleep 1000")
	errs := &buffer{}
	code := s.app(nil, full{}, errs).Run([]string{"--root", s.root, "--socket", s.node.Socket, "cp", "p1:/etc/passwd", "-"})
	if code != 125 || !strings.Contains(errs.String(), "no space left") {
		t.Errorf("code %d, %s", code, errs.String())
	}
}

// TestArchiveOfAGuestStaysInItsPlace: a guest that has been taken over sends what it likes.
func TestArchiveOfAGuestStaysInItsPlace(t *testing.T) {
	dir := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }
	file := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 4}
	}
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	for name, entries := range map[string][]tar.Header{
		"parent":          {dir("d"), file("d/../../evil")},
		"absolute":        {dir("d"), file("/evil")},
		"beside":          {dir("d"), file("evil")},
		"first is other":  {file("evil")},
		"link out":        {dir("d"), link("d/l", ".."), file("d/l/evil")},
		"link to file":    {dir("d"), link("d/l", "../evil"), file("d/l")},
		"link by link":    {dir("d"), dir("d/x"), link("d/x/up", ".."), link("d/l", "x/up/.."), file("d/l/evil")},
		"absolute link":   {dir("d"), link("d/l", "/"), file("d/l/evil-outrigger-test")},
		"hard link":       {dir("d"), {Name: "d/l", Typeflag: tar.TypeLink, Linkname: "d/../kept"}, file("d/l")},
		"top is a link":   {link("d", "kept"), file("d")},
		"two files":       {file("d"), file("evil")},
		"folder by files": {file("d"), file("d/evil")},
	} {
		t.Run(name, func(t *testing.T) {
			place := t.TempDir()
			os.WriteFile(place+"/kept", []byte("kept"), 0o644)
			var buf bytes.Buffer
			w := tar.NewWriter(&buf)
			for _, h := range entries {
				w.WriteHeader(&h)
				if h.Size > 0 {
					io.WriteString(w, "evil")
				}
			}
			w.Close()
			extract(tar.NewReader(&buf), "d", place+"/dest")
			left, _ := os.ReadDir(place)
			for _, e := range left {
				if e.Name() != "kept" && e.Name() != "dest" {
					t.Errorf("%s was written beside the destination", e.Name())
				}
			}
			if data, _ := os.ReadFile(place + "/kept"); string(data) != "kept" {
				t.Errorf("a file beside the destination has become %q", data)
			}
			if _, err := os.Lstat("/evil-outrigger-test"); err == nil {
				t.Error("a file was written to the root folder")
			}
		})
	}
}

func TestCapabilities(t *testing.T) {
	for _, row := range []struct{ add, drop, want string }{
		{"", "", "<default>"}, {"", "all", ""}, {"NET_ADMIN", "ALL", "CAP_NET_ADMIN"}, {"ALL", "", "41"}, {"ALL", "SYS_ADMIN", "40"},
		{"", "CAP_CHOWN", "13"}, {"SYS_TIME", "", "15"}, {"CHOWN", "", "14"}, {"FLY", "", "error"}, {"", "FLY", "error"},
	} {
		split := func(s string) []string { return strings.Fields(s) }
		all, err := parseCapabilities(split(row.add), split(row.drop))
		got := strings.Join(all, " ")
		switch {
		case err != nil:
			got = "error"
		case all == nil:
			got = "<default>"
		case len(all) > 1:
			got = fmt.Sprint(len(all))
		}
		if got != row.want {
			t.Errorf("add %s, drop %s: %s, want %s", row.add, row.drop, got, row.want)
		}
	}
}

// TestWhatIsNotHereIsSaid: flags and commands of docker that have no effect here are errors at once.
func TestWhatIsNotHereIsSaid(t *testing.T) {
	s := newStand(t)
	for line, want := range map[string]string{
		"run --gpus all IMAGE":           "--gpus: no device of this host",
		"run --privileged IMAGE":         "--privileged: a container here has a VM's kernel",
		"run --network host IMAGE":       `--network "host": want default or none: `,
		"run --net=host IMAGE":           "did you mean --network?",
		"run --device /dev/fuse IMAGE":   "--device: ",
		"run --pid host IMAGE":           "--pid: ",
		"run --gpus=1 IMAGE":             "by its instance type: --annotation io.katacontainers.config.hypervisor.machine_type=TYPE",
		"run --ipc host IMAGE":           "--ipc: ",
		"run --security-opt x IMAGE":     "--read-only, --cap-drop and --user",
		"run --health-cmd x IMAGE":       "a livenessProbe in a manifest",
		"run --log-driver none IMAGE":    "see --log-limit",
		"run --add-host a:1.2.3.4 IMAGE": "give addresses with --env",
		"run --init IMAGE":               "have the image reap children",
		"run --pull newer IMAGE":         `--pull "newer": want missing, always or never`,
		"run --ulimit nofile=1 IMAGE":    "--ulimit: the pod's agent takes no other limits",
		"run --entrypont x IMAGE":        "did you mean --entrypoint?",
		"run --pubish 80 IMAGE":          "did you mean --publish?",
		"run -p 80:80/sctp IMAGE":        "only TCP and UDP",
		"run -p x:80 IMAGE":              "want [ADDRESS:]",
		"run -p 80 --network none IMAGE": "the pod has no network",
		"run --cap-add FLY IMAGE":        `--cap-add "FLY"`,
		"run -v a:b:z IMAGE":             "other options have no effect",
		"run -v /nonexistent:/x IMAGE":   "no such file",
		"run --stop-signal BOOM IMAGE":   `signal "BOOM"`,
		"run --tmpfs /x:exec IMAGE":      "unknown key",
		"run --label =x IMAGE":           "--label",
		"logs --folow p":                 "did you mean --follow?",
		"kill -s BOOM p":                 `signal "BOOM"`,
		"load x.tar":                     "instead there is: run docker-archive:FILE",
		"build .":                        "docker build, docker save",
		"image ls":                       "instead there is: images",
		"image improt x":                 "did you mean import?",
		"psa":                            "did you mean play or ps?",
		"create IMAGE":                   "instead there is: run --detach",
		"cp a b":                         "one of the two is POD:PATH",
	} {
		code, _, stderr := s.run(strings.Fields(line)...)
		if code != 125 || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: code %d, want %q:\n%s", line, code, want, stderr)
		}
	}
	if code, stdout, _ := s.run("--version"); code != 0 || !strings.HasPrefix(stdout, "outrigger ") {
		t.Errorf("--version: %d, %q", code, stdout)
	}
}

// TestEveryFlagOfDockerRun is here, or is refused by a sentence that is about it. The list is that of Docker's CLI 29.
func TestEveryFlagOfDockerRun(t *testing.T) {
	flags := (&App{}).runCommand().Flags()
	for _, name := range strings.Fields(`add-host annotation attach blkio-weight blkio-weight-device cap-add cap-drop cgroup-parent cgroupns cidfile cpu-count
		cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares cpus cpuset-cpus cpuset-mems detach detach-keys device
		device-cgroup-rule device-read-bps device-read-iops device-write-bps device-write-iops disable-content-trust dns dns-option dns-search
		domainname entrypoint env env-file expose gpus group-add health-cmd health-interval health-retries health-start-interval
		health-start-period health-timeout hostname init interactive io-maxbandwidth io-maxiops ip ip6 ipc isolation kernel-memory label
		label-file link link-local-ip log-driver log-opt mac-address memory memory-reservation memory-swap memory-swappiness mount name network
		network-alias no-healthcheck oom-kill-disable oom-score-adj pid pids-limit platform privileged publish publish-all pull quiet read-only
		restart rm runtime security-opt shm-size sig-proxy stop-signal stop-timeout storage-opt sysctl tmpfs tty ulimit use-api-socket user
		userns uts volume volume-driver volumes-from workdir`) {
		if flags.Lookup(name) != nil {
			continue
		}
		errs := &buffer{}
		code := (&App{Stdout: io.Discard, Stderr: errs}).Run([]string{"run", "--" + name, "x", "IMAGE"})
		ours := strings.Contains(errs.String(), "did you mean "+otherName[name]+"?")
		if code != 125 || otherName[name] == "" && !strings.HasPrefix(errs.String(), "outrigger: --"+name+": ") || otherName[name] != "" && !ours {
			t.Errorf("--%s: code %d: %s", name, code, errs)
		}
	}
}

func TestStartRestartAttach(t *testing.T) {
	s := newStand(t)
	n := &node.Node{Root: s.root}
	script := "trap 'exit 4' TERM; echo up; while :; do sleep 0.05; done"
	s.detached("web", script, "--rm=false", "-e", "A=1")
	up := func(times int) {
		t.Helper()
		eventually(t, "it is up", func() bool { _, out, _ := s.run("logs", "web"); return out == strings.Repeat("up\n", times) })
	}
	up(1)
	first, _ := n.Pods().Find("web")
	if code, stdout, stderr := s.run("restart", "web"); code != 0 || stdout != "web\n" {
		t.Fatalf("restart: %d, %q, %s", code, stdout, stderr)
	}
	up(2)
	if now, _ := n.Pods().Find("web"); now.ID != first.ID || now.First().ID == first.First().ID || !slices.Contains(now.First().Env, "A=1") {
		t.Errorf("restarted as %+v", now)
	}
	if code, stdout, _ := s.run("start", "web"); code != 0 || stdout != "web\n" {
		t.Errorf("start of what runs: %d, %q", code, stdout)
	}
	s.run("stop", "web")
	if code, stdout, stderr := s.run("start", "web"); code != 0 || stdout != "web\n" {
		t.Fatalf("start: %d, %q, %s", code, stdout, stderr)
	}
	up(3)
	out, attached := &buffer{}, make(chan int)
	go func() {
		attached <- s.app(nil, out, io.Discard).Run([]string{"--root", s.root, "--socket", s.node.Socket, "attach", "web"})
	}()
	eventually(t, "attach shows the log", func() bool { return out.String() != "" })
	s.run("stop", "web")
	if code := <-attached; code != 4 {
		t.Errorf("attach: %d", code)
	}
	s.detached("gone", script)
	if code, stdout, stderr := s.run("restart", "-t", "5", "gone"); code != 0 || stdout != "gone\n" {
		t.Errorf("restart of one that is not kept: %d, %q, %s", code, stdout, stderr)
	}
}

func TestRestartPolicy(t *testing.T) {
	s := newStand(t)
	count := func(name string) string { _, out, _ := s.run("logs", name); return out }
	s.detached("twice", "echo x; exit 3", "--restart", "on-failure:1", "--rm=false")
	eventually(t, "it has given up", func() bool { _, out, _ := s.run("ps", "-q", "-f", "exited=3"); return out != "" })
	if got := count("twice"); got != "x\nx\n" {
		t.Errorf("on-failure:1 ran %q", got)
	}
	s.detached("fine", "echo x", "--restart=on-failure", "--rm=false")
	eventually(t, "it has ended", func() bool { _, out, _ := s.run("ps", "-q", "-f", "exited=0"); return out != "" })
	if got := count("fine"); got != "x\n" {
		t.Errorf("a container that succeeds ran %q", got)
	}
	s.detached("always", "echo x; trap 'exit 4' USR1; [ -e "+s.root+"/go ] || { touch "+s.root+"/go; exit 0; }; while :; do sleep 0.02; done", "--restart", "always", "--stop-signal", "USR1", "--rm=false")
	eventually(t, "it runs again", func() bool { return strings.HasPrefix(count("always"), "x\nx\n") })
	if code, _, stderr := s.run("stop", "always"); code != 0 {
		t.Errorf("stop: %d, %s", code, stderr)
	}
	if _, out, _ := s.run("wait", "always"); out != "4\n" && out != "0\n" { // 0: it was stopped in the pause
		t.Errorf("after stop: %q", out)
	}
	os.Remove(s.root + "/go")
	for text, want := range map[string]string{"sometimes": "want no, on-failure", "always:3": "want no", "on-failure:x": "want no", "always": "goes with --detach"} {
		if code, _, stderr := s.run("run", "--restart", text, s.image); code != 125 || !strings.Contains(stderr, want) {
			t.Errorf("--restart %s: %d, %s", text, code, stderr)
		}
	}
}

// TestDeepMountsComeLast: no mount hides one that lies in it, in whichever order they are typed.
func TestDeepMountsComeLast(t *testing.T) {
	f := &runFlags{}
	f.Mounts = []podclient.Mount{{Destination: "/etc/app/app.conf"}, {Destination: "/var/lib"}, {Destination: "/etc/app"}}
	a := newStand(t).app(nil, &buffer{}, &buffer{})
	f.request(a, "busybox", nil) // with other settings that are missing
	if f.Mounts[0].Destination != "/var/lib" || f.Mounts[1].Destination != "/etc/app" || f.Mounts[2].Destination != "/etc/app/app.conf" {
		t.Errorf("mounts in the order %+v", f.Mounts)
	}
}
