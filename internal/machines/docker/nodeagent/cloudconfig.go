// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// cloudFile is an entry of write_files.
type cloudFile struct {
	Path        string `yaml:"path"`
	Content     string `yaml:"content"`
	Owner       string `yaml:"owner"`
	Permissions string `yaml:"permissions"`
	Encoding    string `yaml:"encoding"`
	Append      bool   `yaml:"append"`
	Defer       bool   `yaml:"defer"`
}

// The first lines of cloud-config.
const (
	cloudHeader = "#cloud-config"
	jinjaHeader = "## template: jinja"
)

func parseCloudConfig(data []byte, seed Seed) (*Plan, error) {
	text, err := render(string(data), seed)
	if err != nil {
		return nil, err
	}
	if first, _, _ := strings.Cut(text, "\n"); strings.TrimRight(first, " \t\r") != cloudHeader {
		return nil, fmt.Errorf("the bootstrap data do not begin with %s", cloudHeader)
	}
	var keys map[string]yaml.Node
	if err := yaml.Unmarshal([]byte(text), &keys); err != nil {
		return nil, errors.New("the bootstrap data are not a mapping in YAML") // the reason quotes values
	}
	p := new(Plan)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if err := p.cloudKey(key, keys[key]); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return p, nil
}

func (p *Plan) cloudKey(key string, value yaml.Node) (err error) {
	switch key {
	case "write_files":
		return p.cloudFiles(value)
	case "bootcmd":
		p.Early, err = commands(value)
	case "runcmd":
		p.Commands, err = commands(value)
	default:
		p.Ignored = append(p.Ignored, key)
	}
	return err
}

// variable is a placeholder that cloud-init replaces by data of the instance.
var variable = regexp.MustCompile(`\{\{-?\s*(?:ds\.meta_data|v1)(?:\.([a-z_]+)|\[['"]([a-z_]+)['"]\])\s*-?\}\}`)

// render does what bootstrap providers need of Jinja: the instance's names.
func render(text string, seed Seed) (string, error) {
	first, rest, _ := strings.Cut(text, "\n")
	if strings.TrimSpace(first) != jinjaHeader {
		return text, nil
	}
	known := map[string]string{
		"hostname": seed.Hostname, "local_hostname": seed.Hostname, "instance_id": seed.InstanceID, "provider_id": seed.ProviderID,
	}
	var unknown error
	rest = variable.ReplaceAllStringFunc(rest, func(expression string) string {
		groups := variable.FindStringSubmatch(expression)
		value, ok := known[groups[1]+groups[2]]
		if !ok {
			unknown = fmt.Errorf("the template of the bootstrap data asks for %s: known are hostname, local_hostname, instance_id, provider_id", groups[1]+groups[2])
		}
		return value
	})
	return rest, unknown
}

func (p *Plan) cloudFiles(value yaml.Node) error {
	var list []cloudFile
	if err := value.Decode(&list); err != nil {
		return errors.New("not a list of files")
	}
	for i, entry := range list {
		f, err := entry.file()
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		p.Files = append(p.Files, f)
	}
	return nil
}

func (c cloudFile) file() (File, error) {
	f := File{Path: c.Path, Mode: 0o644, Owner: c.Owner, Append: c.Append}
	if err := f.check(); err != nil {
		return f, err
	}
	if c.Permissions != "" {
		mode, err := strconv.ParseUint(strings.TrimPrefix(c.Permissions, "0o"), 8, 12)
		if err != nil {
			return f, fmt.Errorf("permissions of %s are not an octal number", c.Path)
		}
		f.Mode = modeOf(mode)
	}
	var err error
	if f.Content, err = decode(c.Content, c.Encoding); err != nil {
		return f, fmt.Errorf("content of %s: %w", c.Path, err)
	}
	return f, nil
}

// modeOf has the special bits where package os has them.
func modeOf(bits uint64) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	for bit, special := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= special
		}
	}
	return mode
}

func decode(content, encoding string) ([]byte, error) {
	data := []byte(content)
	var err error
	switch encoding {
	case "", "text/plain":
		return data, nil
	case "gz", "gzip":
	case "b64", "base64", "gz+b64", "gzip+b64", "gz+base64", "gzip+base64":
		data, err = base64.StdEncoding.DecodeString(strings.TrimSpace(content))
	default:
		return nil, fmt.Errorf("unknown encoding %q", encoding)
	}
	if err != nil {
		return nil, errors.New("not base64")
	}
	if strings.HasPrefix(encoding, "gz") {
		return gunzip(data)
	}
	return data, nil
}

// contentLimit keeps a small archive from filling the machine.
const contentLimit = 64 << 20

func gunzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, errors.New("not gzip")
	}
	out, err := io.ReadAll(io.LimitReader(r, contentLimit+1))
	if err != nil {
		return nil, errors.New("gzip that is damaged")
	}
	if len(out) > contentLimit {
		return nil, fmt.Errorf("more than %d bytes", contentLimit)
	}
	return out, nil
}

// commands reads a list whose entries are scripts or programs with arguments.
func commands(value yaml.Node) ([][]string, error) {
	if value.Kind != yaml.SequenceNode {
		return nil, errors.New("not a list")
	}
	var list [][]string
	for i, node := range value.Content {
		var script string
		var argv []string
		if node.Kind == yaml.ScalarNode && node.Decode(&script) == nil && script != "" {
			list = append(list, []string{"/bin/sh", "-c", script})
		} else if node.Decode(&argv) == nil && len(argv) > 0 && argv[0] != "" {
			list = append(list, argv)
		} else {
			return nil, fmt.Errorf("entry %d is neither a script nor a list of words", i)
		}
	}
	return list, nil
}
