// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"errors"
	"path"
	"strings"
)

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
