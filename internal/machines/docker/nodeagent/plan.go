// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/internal/wholefile"
)

// Plan is what bootstrap data ask for, in the order in which it is done.
type Plan struct {
	Early    [][]string // before there are files
	Files    []File
	Commands [][]string
	// Ignored are the parts that are not done.
	Ignored []string
}

// File is one of the machine's: a regular file, a folder, or a link to Target.
type File struct {
	Path    string
	Content []byte
	Mode    fs.FileMode
	// Owner is USER, USER:GROUP or numbers; empty is root.
	Owner  string
	Append bool
	Dir    bool
	Target string
}

// Parse reads bootstrap data. Errors never quote content.
func Parse(data []byte, seed Seed) (*Plan, error) {
	switch seed.Format {
	case FormatCloudConfig, "":
		return parseCloudConfig(data, seed)
	case FormatIgnition:
		return parseIgnition(data)
	}
	return nil, fmt.Errorf("bootstrap data of format %q: known are %s and %s", seed.Format, FormatCloudConfig, FormatIgnition)
}

// check refuses what would be written somewhere by chance.
func (f File) check() error {
	if !filepath.IsAbs(f.Path) || filepath.Clean(f.Path) == "/" {
		return fmt.Errorf("path %q is not that of a file", f.Path)
	}
	return nil
}

// write makes the file below root. It may be repeated.
func (f File) write(root string) error {
	at := filepath.Join(root, f.Path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	var err error
	switch {
	case f.Dir:
		err = os.MkdirAll(at, f.Mode)
	case f.Target != "":
		if err := os.Remove(at); err != nil && !os.IsNotExist(err) {
			return err
		}
		return os.Symlink(f.Target, at)
	case f.Append:
		err = f.appendTo(at)
	default:
		err = wholefile.Replace(at, f.Content, f.Mode)
	}
	if err != nil {
		return err
	}
	if err := os.Chmod(at, f.Mode); err != nil {
		return err
	}
	return f.chown(root, at)
}

// appendTo adds the content unless the file ends with it: then an attempt that
// was interrupted has added it.
func (f File) appendTo(at string) error {
	old, err := os.ReadFile(at)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if strings.HasSuffix(string(old), string(f.Content)) {
		return nil
	}
	return wholefile.Replace(at, append(old, f.Content...), f.Mode)
}

func (f File) chown(root, at string) error {
	if f.Owner == "" {
		return nil
	}
	uid, gid, err := numbers(f.Owner)
	if err != nil {
		return fmt.Errorf("owner of %s: %w", f.Path, err)
	}
	if uid == os.Getuid() && gid == os.Getgid() {
		return nil
	}
	return os.Chown(at, uid, gid)
}

// numbers returns the numeric ids of USER or USER:GROUP; the default is the user's own
// group.
func numbers(owner string) (uid, gid int, err error) {
	name, group, _ := strings.Cut(owner, ":")
	if name == "root" {
		name = "0" // also where there is no /etc/passwd
	}
	if uid, err = strconv.Atoi(name); err != nil {
		entry, err := user.Lookup(name)
		if err != nil {
			return 0, 0, err
		}
		uid, _ = strconv.Atoi(entry.Uid)
		gid, _ = strconv.Atoi(entry.Gid)
	}
	switch {
	case group == "":
		return uid, gid, nil
	case group == "root":
		return uid, 0, nil
	}
	if gid, err = strconv.Atoi(group); err == nil {
		return uid, gid, nil
	}
	entry, err := user.LookupGroup(group)
	if err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(entry.Gid)
	return uid, gid, err
}

// unfit are checks of kubeadm that fail in a container and say nothing about it: the
// kernel's configuration cannot be read there, swap and the settings of bridges are the
// host's.
const unfit = "--ignore-preflight-errors=SystemVerification,Swap,FileContent--proc-sys-net-bridge-bridge-nf-call-iptables"

// kubeadmCall is one in a script.
var kubeadmCall = regexp.MustCompile(`(^|[\s;&|(/])kubeadm\s+(init|join)\b`)

// leaveOutUnfit has kubeadm leave out what is unfit, wherever a command calls it.
// kubeadm adds what its configuration leaves out.
func (p *Plan) leaveOutUnfit() {
	for i, argv := range p.Commands {
		switch {
		case len(argv) > 1 && path.Base(argv[0]) == "kubeadm" && (argv[1] == "init" || argv[1] == "join"):
			p.Commands[i] = slices.Insert(slices.Clone(argv), 2, unfit)
		case len(argv) == 3 && argv[0] == "/bin/sh" && argv[1] == "-c":
			p.Commands[i] = []string{argv[0], argv[1], kubeadmCall.ReplaceAllString(argv[2], "${1}kubeadm $2 "+unfit)}
		}
	}
}

// leaveConntrack keeps kube-proxy from setting the size of the table of connections: it is the
// host's, and no container may. kubeadm's configuration may say otherwise.
const leaveConntrack = `---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {maxPerCore: 0, min: 0}
`

// leaveOutConntrack adds that to a file of kubeadm's configuration.
func (p *Plan) leaveOutConntrack() {
	for i, f := range p.Files {
		text := string(f.Content)
		if strings.Contains(text, "\nkind: ClusterConfiguration\n") && !strings.Contains(text, "kind: KubeProxyConfiguration") {
			p.Files[i].Content = []byte(strings.TrimSuffix(text, "\n") + "\n" + leaveConntrack)
		}
	}
}
