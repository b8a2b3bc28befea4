// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// ignition is what is read of Ignition 2 and 3; a field that only the other
// version has is empty.
type ignition struct {
	Ignition struct {
		Version string `json:"version"`
	} `json:"ignition"`
	Storage struct {
		Directories []ignitionFile `json:"directories"`
		Files       []ignitionFile `json:"files"`
		Links       []ignitionFile `json:"links"`
		Disks       []any          `json:"disks"`
		Filesystems []any          `json:"filesystems"`
		Raid        []any          `json:"raid"`
	} `json:"storage"`
	Systemd struct {
		Units []ignitionUnit `json:"units"`
	} `json:"systemd"`
	Passwd map[string]any `json:"passwd"`
}

type ignitionFile struct {
	Path     string            `json:"path"`
	Mode     *uint64           `json:"mode"`
	Contents ignitionContents  `json:"contents"`
	Append   json.RawMessage   `json:"append"`
	Target   string            `json:"target"`
	Hard     bool              `json:"hard"`
	User     ignitionPrincipal `json:"user"`
	Group    ignitionPrincipal `json:"group"`
}

type ignitionContents struct {
	Source      string `json:"source"`
	Compression string `json:"compression"`
}

type ignitionPrincipal struct {
	ID   *int   `json:"id"`
	Name string `json:"name"`
}

func (p ignitionPrincipal) String() string {
	if p.ID != nil {
		return strconv.Itoa(*p.ID)
	}
	return p.Name
}

type ignitionUnit struct {
	Name     string `json:"name"`
	Enabled  bool   `json:"enabled"`
	Enable   bool   `json:"enable"` // version 2.0
	Mask     bool   `json:"mask"`
	Contents string `json:"contents"`
	Dropins  []struct {
		Name     string `json:"name"`
		Contents string `json:"contents"`
	} `json:"dropins"`
}

func parseIgnition(data []byte) (*Plan, error) {
	var c ignition
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, errors.New("the bootstrap data are not Ignition's JSON") // the reason quotes values
	}
	if v := c.Ignition.Version; !strings.HasPrefix(v, "2.") && !strings.HasPrefix(v, "3.") {
		return nil, fmt.Errorf("this is Ignition of version %q: known are 2 and 3", v)
	}
	p := new(Plan)
	for i, entry := range c.Storage.Directories {
		p.Files = append(p.Files, File{Path: entry.Path, Mode: entry.mode(0o755), Owner: entry.owner(), Dir: true})
		if err := p.Files[i].check(); err != nil {
			return nil, fmt.Errorf("directories: %w", err)
		}
	}
	for _, entry := range c.Storage.Files {
		f, err := entry.file()
		if err != nil {
			return nil, fmt.Errorf("files: %w", err)
		}
		p.Files = append(p.Files, f)
	}
	for _, entry := range c.Storage.Links {
		f := File{Path: entry.Path, Target: entry.Target}
		if err := f.check(); err != nil || entry.Hard || entry.Target == "" {
			return nil, fmt.Errorf("links: %q is not a symbolic link from a path to another", entry.Path)
		}
		p.Files = append(p.Files, f)
	}
	for _, unit := range c.Systemd.Units {
		if err := p.unit(unit); err != nil {
			return nil, fmt.Errorf("unit %s: %w", unit.Name, err)
		}
	}
	// What a container cannot have, or has already.
	for _, part := range []struct {
		name string
		size int
	}{
		{"storage.disks", len(c.Storage.Disks)}, {"storage.filesystems", len(c.Storage.Filesystems)},
		{"storage.raid", len(c.Storage.Raid)}, {"passwd", len(c.Passwd)},
	} {
		if part.size > 0 {
			p.Ignored = append(p.Ignored, part.name)
		}
	}
	return p, nil
}

func (e ignitionFile) mode(otherwise uint64) fs.FileMode {
	if e.Mode != nil {
		otherwise = *e.Mode
	}
	return modeOf(otherwise)
}

func (e ignitionFile) owner() string {
	if e.User.String() == "" && e.Group.String() == "" {
		return ""
	}
	owner := cmp.Or(e.User.String(), "0")
	if group := e.Group.String(); group != "" {
		owner += ":" + group
	}
	return owner
}

// file converts a file of version 2 or 3. Version 3 has a list of what is appended.
func (e ignitionFile) file() (File, error) {
	f := File{Path: e.Path, Mode: e.mode(0o644), Owner: e.owner()}
	if err := f.check(); err != nil {
		return f, err
	}
	sources := []ignitionContents{e.Contents}
	var more []ignitionContents
	if json.Unmarshal(e.Append, &more) == nil && len(more) > 0 {
		f.Append, sources = true, more
	} else if string(e.Append) == "true" {
		f.Append = true
	}
	for _, source := range sources {
		content, err := source.read()
		if err != nil {
			return f, fmt.Errorf("%s: %w", e.Path, err)
		}
		f.Content = append(f.Content, content...)
	}
	return f, nil
}

// read decodes a data URL, RFC 2397: bootstrap data have everything in them.
func (c ignitionContents) read() ([]byte, error) {
	if c.Source == "" {
		return nil, nil
	}
	rest, ok := strings.CutPrefix(c.Source, "data:")
	kind, text, comma := strings.Cut(rest, ",")
	if !ok || !comma {
		return nil, errors.New("the source is not a data URL: nothing is fetched from elsewhere")
	}
	text, err := url.PathUnescape(text)
	if err != nil {
		return nil, errors.New("the data URL is damaged")
	}
	data := []byte(text)
	if strings.HasSuffix(kind, ";base64") {
		if data, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, errors.New("the data URL is not base64")
		}
	}
	switch c.Compression {
	case "":
		return data, nil
	case "gzip":
		return gunzip(data)
	}
	return nil, fmt.Errorf("unknown compression %q", c.Compression)
}

// unitDir is where systemd looks first.
const unitDir = "/etc/systemd/system"

// unit writes a unit where systemd looks. One that is enabled and runs to an
// end is a part of the bootstrap: there is no systemd to start it. One that
// serves belongs into the image.
func (p *Plan) unit(u ignitionUnit) error {
	if u.Name == "" || strings.Contains(u.Name, "/") {
		return errors.New("this is not a name")
	}
	if u.Contents != "" {
		p.Files = append(p.Files, File{Path: path.Join(unitDir, u.Name), Content: []byte(u.Contents), Mode: 0o644})
	}
	for _, d := range u.Dropins {
		p.Files = append(p.Files, File{Path: path.Join(unitDir, u.Name+".d", path.Base(d.Name)), Content: []byte(d.Contents), Mode: 0o644})
	}
	if u.Contents == "" || u.Mask || !(u.Enabled || u.Enable) {
		return nil
	}
	kind, starts := readUnit(u.Contents)
	if kind != "oneshot" || len(starts) == 0 {
		p.Ignored = append(p.Ignored, "start of "+u.Name)
		return nil
	}
	for _, line := range starts {
		p.Commands = append(p.Commands, []string{"/bin/sh", "-c", line})
	}
	return nil
}

// readUnit returns Type and what is run, in order. A shell understands what
// systemd takes for words, variables of units left aside.
func readUnit(text string) (kind string, starts []string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || section != "[Service]" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "Type":
			kind = value
		case "ExecStartPre", "ExecStart", "ExecStartPost":
			starts = append(starts, command(value))
		}
	}
	return kind, starts
}

// command returns a line of Exec… without its prefixes. With the prefix "-" its
// failure is ignored.
func command(line string) string {
	rest := strings.TrimLeft(line, "-@:+!")
	if strings.Contains(line[:len(line)-len(rest)], "-") {
		return rest + " || true"
	}
	return rest
}
