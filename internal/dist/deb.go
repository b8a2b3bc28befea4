// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/outrigger/outrigger/internal/filetree"
)

// debPackage is a package of Debian in the making.
type debPackage struct {
	// Fields of the control file, in order; Installed-Size is added.
	Fields []field
	Tree   filetree.Tree
	Date   time.Time
}

type field struct{ Name, Value string }

// write writes the package: an ar archive of three members (deb(5)).
func (p *debPackage) write(w io.Writer) error {
	var control, data bytes.Buffer
	// Debian 12's dpkg can read zstd: as small as gzip's best, in a tenth of the time, and
	// unpacked in a third of it. More than one thread might give other bytes.
	zip, err := zstd.NewWriter(&data, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	if err := errors.Join(p.writeControl(&control), p.Tree.WriteTar(zip, "./", p.Date), zip.Close()); err != nil {
		return err
	}
	if _, err := io.WriteString(w, "!<arch>\n"); err != nil {
		return err
	}
	for _, m := range []struct {
		name string
		data []byte
	}{
		{"debian-binary", []byte("2.0\n")},
		{"control.tar.gz", control.Bytes()},
		{"data.tar.zst", data.Bytes()},
	} {
		if err := writeMember(w, m.name, m.data, p.Date); err != nil {
			return err
		}
	}
	return nil
}

// writeMember writes one file of an ar archive: a header of 60 bytes and the
// content, padded to an even length.
func writeMember(w io.Writer, name string, data []byte, date time.Time) error {
	_, err := fmt.Fprintf(w, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", name, date.Unix(), 0, 0, 0o100644, len(data))
	if err != nil {
		return err
	}
	if len(data)%2 == 1 {
		data = append(data[:len(data):len(data)], '\n')
	}
	_, err = w.Write(data)
	return err
}

func (p *debPackage) writeControl(w io.Writer) error {
	sums, size, err := p.contents()
	if err != nil {
		return err
	}
	var control strings.Builder
	for _, f := range append(p.Fields[:len(p.Fields):len(p.Fields)], field{"Installed-Size", fmt.Sprint(size)}) {
		fmt.Fprintf(&control, "%s: %s\n", f.Name, f.Value)
	}
	t := filetree.Tree{}
	t.File("control", []byte(control.String()))
	t.File("md5sums", sums)
	return zip(t, w, "./", p.Date)
}

// contents returns the checksums of the files, for dpkg --verify, and their
// size in KiB as Debian counts it: each is rounded up, all else is one.
func (p *debPackage) contents() (sums []byte, size int64, err error) {
	var out bytes.Buffer
	size = int64(len(p.Tree.Folders()))
	for _, name := range p.Tree.Names() {
		e := p.Tree[name]
		if e.Link != "" {
			size++
			continue
		}
		content, bytes, err := e.Open()
		if err != nil {
			return nil, 0, err
		}
		h := md5.New()
		_, err = io.Copy(h, content)
		content.Close()
		if err != nil {
			return nil, 0, err
		}
		fmt.Fprintf(&out, "%x  %s\n", h.Sum(nil), name)
		size += (bytes + 1023) / 1024
	}
	return out.Bytes(), size, nil
}
