// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Offsets in a PE32+ image (Microsoft PE Format, sections "COFF File Header",
// "Optional Header", "Section Table").
const (
	peOffsetAt        = 0x3c // in the DOS header
	peSectionCount    = 6    // from the PE signature
	peOptionalSize    = 20
	peOptionalHeader  = 24
	peMagic64         = 0x20b
	peSectionAlign    = 32 // from the optional header
	peFileAlign       = 36
	peImageSize       = 56
	peHeadersSize     = 60
	peChecksum        = 64
	peSectionHeader   = 40
	peSectionReadData = 0x40000040 // IMAGE_SCN_CNT_INITIALIZED_DATA | IMAGE_SCN_MEM_READ
)

// ukiSection is one part of a unified kernel image; the names are those that
// systemd-stub(7) looks for.
type ukiSection struct {
	name string
	data []byte
}

// pe is an image that is being extended.
type pe struct {
	b             []byte
	sig, optional int // offsets of the signature and the optional header
}

// buildUKI appends sections to systemd's stub. It writes no time stamps, so
// equal parts give equal images.
func buildUKI(stub []byte, sections []ukiSection) ([]byte, error) {
	p, err := openPE(stub)
	if err != nil {
		return nil, fmt.Errorf("EFI stub: %w", err)
	}
	for _, s := range sections {
		if err := p.appendSection(s); err != nil {
			return nil, fmt.Errorf("add section %s: %w", s.name, err)
		}
	}
	// Firmware does not check it, and the stub's own value is wrong now.
	p.put32(p.optional+peChecksum, 0)
	return p.b, nil
}

func openPE(stub []byte) (*pe, error) {
	if len(stub) < 0x40 || string(stub[:2]) != "MZ" {
		return nil, errors.New("not a PE image: no MZ magic")
	}
	sig := int(binary.LittleEndian.Uint32(stub[peOffsetAt:]))
	if sig <= 0 || sig+peOptionalHeader+peChecksum+4 > len(stub) || string(stub[sig:sig+4]) != "PE\x00\x00" {
		return nil, errors.New("not a PE image: no PE signature")
	}
	p := &pe{b: append([]byte(nil), stub...), sig: sig, optional: sig + peOptionalHeader}
	if magic := p.get16(p.optional); magic != peMagic64 {
		return nil, fmt.Errorf("PE magic %#x, want %#x (64 bit)", magic, peMagic64)
	}
	if p.get32(p.optional+peSectionAlign) == 0 || p.get32(p.optional+peFileAlign) == 0 {
		return nil, errors.New("PE image without alignment")
	}
	if end := p.tableEnd(); end > len(p.b) {
		return nil, errors.New("PE section table is outside the file")
	}
	return p, nil
}

func (p *pe) get16(at int) int    { return int(binary.LittleEndian.Uint16(p.b[at:])) }
func (p *pe) get32(at int) int    { return int(binary.LittleEndian.Uint32(p.b[at:])) }
func (p *pe) put32(at, value int) { binary.LittleEndian.PutUint32(p.b[at:], uint32(value)) }
func (p *pe) sections() int       { return p.get16(p.sig + peSectionCount) }
func (p *pe) table() int          { return p.optional + p.get16(p.sig+peOptionalSize) }
func (p *pe) tableEnd() int       { return p.table() + p.sections()*peSectionHeader }

func alignUp[T int | int64](n, alignment T) T { return (n + alignment - 1) / alignment * alignment }

func (p *pe) padTo(alignment int) {
	p.b = append(p.b, make([]byte, alignUp(len(p.b), alignment)-len(p.b))...)
}

// memoryEnd returns where the last section ends in memory.
func (p *pe) memoryEnd() int {
	end := 0
	for i := range p.sections() {
		h := p.table() + i*peSectionHeader
		end = max(end, p.get32(h+12)+p.get32(h+8))
	}
	return end
}

func (p *pe) appendSection(s ukiSection) error {
	header := p.tableEnd()
	if header+peSectionHeader > p.get32(p.optional+peHeadersSize) {
		return errors.New("no room for another header in the stub")
	}
	if len(s.name) > 8 {
		return errors.New("name is longer than 8 bytes")
	}
	sectionAlign, fileAlign := p.get32(p.optional+peSectionAlign), p.get32(p.optional+peFileAlign)
	address := alignUp(p.memoryEnd(), sectionAlign)
	p.padTo(fileAlign)
	offset := len(p.b)
	p.b = append(p.b, s.data...)
	p.padTo(fileAlign)

	clear(p.b[header : header+peSectionHeader])
	copy(p.b[header:], s.name)
	p.put32(header+8, len(s.data))
	p.put32(header+12, address)
	p.put32(header+16, len(p.b)-offset)
	p.put32(header+20, offset)
	p.put32(header+36, peSectionReadData)
	binary.LittleEndian.PutUint16(p.b[p.sig+peSectionCount:], uint16(p.sections()+1))
	p.put32(p.optional+peImageSize, alignUp(address+len(s.data), sectionAlign))
	return nil
}
