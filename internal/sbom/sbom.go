// SPDX-License-Identifier: Apache-2.0

// Package sbom writes bills of materials in the form of SPDX 2.3
// (https://spdx.github.io/spdx-spec/v2.3/). Equal contents give equal bytes.
package sbom

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The part of SPDX that is used.
type (
	document struct {
		SPDXVersion       string         `json:"spdxVersion"`
		DataLicense       string         `json:"dataLicense"`
		SPDXID            string         `json:"SPDXID"`
		Name              string         `json:"name"`
		DocumentNamespace string         `json:"documentNamespace"`
		CreationInfo      creation       `json:"creationInfo"`
		Packages          []software     `json:"packages"`
		Relationships     []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	software struct {
		SPDXID           string        `json:"SPDXID"`
		Name             string        `json:"name"`
		VersionInfo      string        `json:"versionInfo"`
		DownloadLocation string        `json:"downloadLocation"`
		FilesAnalyzed    bool          `json:"filesAnalyzed"`
		LicenseConcluded string        `json:"licenseConcluded"`
		LicenseDeclared  string        `json:"licenseDeclared"`
		CopyrightText    string        `json:"copyrightText"`
		Purpose          string        `json:"primaryPackagePurpose"`
		Checksums        []checksum    `json:"checksums,omitempty"`
		ExternalRefs     []externalRef `json:"externalRefs,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	externalRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const (
	documentID = "SPDXRef-DOCUMENT"
	unknown    = "NOASSERTION"
)

// Document is a bill of materials in the making.
type Document struct{ d document }

// ID names what a document lists, within the document.
type ID string

// New returns an empty document, made of sources of that time.
func New(name string, created time.Time) *Document {
	return &Document{document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: documentID, Name: name,
		CreationInfo: creation{Created: created.UTC().Format(time.RFC3339), Creators: []string{"Tool: outrigger-release"}},
	}}
}

// Artifact is a file that is handed out, or a container image.
type Artifact struct {
	Name, Version, License string
	// Purpose is a word of SPDX, such as CONTAINER, ARCHIVE or INSTALL.
	Purpose string
	// SHA256 is in hexadecimal; empty when it is not known.
	SHA256 string
}

// AddArtifact adds what the document describes, and returns its name for what
// is in it.
func (d *Document) AddArtifact(a Artifact) ID {
	s := newSoftware(identifier("Artifact", a.Name), a.Name, a.Version, a.Purpose)
	s.LicenseDeclared = cmp.Or(a.License, unknown)
	if a.SHA256 != "" {
		s.Checksums = []checksum{{"SHA256", a.SHA256}}
	}
	d.add(s)
	d.relate(documentID, "DESCRIBES", s.SPDXID)
	return ID(s.SPDXID)
}

// Program is one that was written in Go.
type Program struct {
	Name, Version, License string
	// Architecture is GOARCH where the document lists the same program for
	// several, else empty.
	Architecture string
	// In is what the program is a part of; empty is the document.
	In ID
}

// AddProgram adds a program and the modules that the Go linker wrote into it.
func (d *Document) AddProgram(p Program, content []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return err
	}
	id := identifier("Program", strings.TrimSuffix(p.Name+"-"+p.Architecture, "-"))
	s := newSoftware(id, p.Name, p.Version, "APPLICATION")
	s.LicenseConcluded, s.LicenseDeclared = p.License, p.License
	s.Checksums = []checksum{{"SHA256", fmt.Sprintf("%x", sha256.Sum256(content))}}
	d.add(s)
	if p.In == "" {
		d.relate(documentID, "DESCRIBES", id)
	} else {
		d.relate(string(p.In), "CONTAINS", id)
	}
	d.addModule(id, "stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.addModule(id, m.Path, m.Version)
	}
	return nil
}

func (d *Document) addModule(program, path, version string) {
	id := "SPDXRef-Module-" + fmt.Sprintf("%x", sha256.Sum256([]byte(path+"@"+version)))[:16]
	d.relate(program, "DEPENDS_ON", id)
	d.addLibrary(id, path, version, fmt.Sprintf("pkg:golang/%s@%s", path, version))
}

// AddDebian adds a package of Debian of which something is in an artifact.
func (d *Document) AddDebian(in ID, name, version, architecture string) {
	id := identifier("Debian", name+"-"+version+"-"+architecture)
	d.relate(string(in), "CONTAINS", id)
	d.addLibrary(id, name, version, fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", name, url.QueryEscape(version), architecture))
}

func (d *Document) addLibrary(id, name, version, locator string) {
	s := newSoftware(id, name, version, "LIBRARY")
	s.ExternalRefs = []externalRef{{"PACKAGE-MANAGER", "purl", locator}}
	d.add(s)
}

func newSoftware(id, name, version, purpose string) software {
	return software{
		SPDXID: id, Name: name, VersionInfo: version, DownloadLocation: unknown,
		LicenseConcluded: unknown, LicenseDeclared: unknown, CopyrightText: unknown, Purpose: purpose,
	}
}

// add adds each thing once.
func (d *Document) add(s software) {
	if !slices.ContainsFunc(d.d.Packages, func(known software) bool { return known.SPDXID == s.SPDXID }) {
		d.d.Packages = append(d.d.Packages, s)
	}
}

func (d *Document) relate(element, kind, related string) {
	d.d.Relationships = append(d.d.Relationships, relationship{element, kind, related})
}

// outside are the characters that no identifier of SPDX may have.
var outside = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

func identifier(kind, name string) string {
	return "SPDXRef-" + kind + "-" + outside.ReplaceAllString(name, "-")
}

// Encode returns the document in its order, with a name that only this content
// has.
func (d *Document) Encode() ([]byte, error) {
	o := &d.d
	slices.SortFunc(o.Packages, func(a, b software) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.VersionInfo, b.VersionInfo), cmp.Compare(a.SPDXID, b.SPDXID))
	})
	slices.SortFunc(o.Relationships, func(a, b relationship) int {
		return cmp.Or(cmp.Compare(a.Element, b.Element), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Related, b.Related))
	})
	o.Relationships = slices.Compact(o.Relationships)
	content, err := json.Marshal(o.Packages)
	if err != nil {
		return nil, err
	}
	o.DocumentNamespace = fmt.Sprintf("https://outrigger.dev/spdx/%s-%x", o.Name, sha256.Sum256(content))
	return json.MarshalIndent(o, "", "  ")
}

// SourceDate reads SOURCE_DATE_EPOCH, the time of the sources, which whoever
// builds reproducibly says (https://reproducible-builds.org/specs/source-date-epoch/).
// Without it there is none to tell: it returns 1970.
func SourceDate(epoch string) (time.Time, error) {
	seconds, err := strconv.ParseInt(cmp.Or(epoch, "0"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s is not a number of seconds", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
