// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The part of SPDX 2.3 that is used (https://spdx.github.io/spdx-spec/v2.3/).
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

// bill answers the bill of materials of the programs: the modules that the Go
// linker wrote into each. Equal programs give equal bytes.
func (o *Options) bill() ([]byte, error) {
	created, err := timestamp(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return nil, err
	}
	d := &document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: documentID, Name: o.provider() + "-" + o.Version,
		CreationInfo: creation{Created: created, Creators: []string{"Tool: outrigger-release"}},
	}
	for _, p := range o.Programs {
		if err := d.addProgram(o, p); err != nil {
			return nil, fmt.Errorf("bill of materials: %w", err)
		}
	}
	d.tidy()
	return json.MarshalIndent(d, "", "  ")
}

// timestamp is the time of the sources, which whoever builds a release
// reproducibly says (https://reproducible-builds.org/specs/source-date-epoch/);
// without it there is none to tell.
func timestamp(epoch string) (string, error) {
	seconds, err := strconv.ParseInt(cmp.Or(epoch, "0"), 10, 64)
	if err != nil {
		return "", fmt.Errorf("SOURCE_DATE_EPOCH=%s is no number of seconds", epoch)
	}
	return time.Unix(seconds, 0).UTC().Format(time.RFC3339), nil
}

func (d *document) addProgram(o *Options, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%w: build it first, such as with `make build`", err)
	}
	sum, err := checksumOf(path)
	if err != nil {
		return err
	}
	name := filepath.Base(path)
	program := software{
		SPDXID: "SPDXRef-Program-" + name, Name: name, VersionInfo: o.Version, DownloadLocation: unknown,
		LicenseConcluded: o.License, LicenseDeclared: o.License, CopyrightText: unknown, Purpose: "APPLICATION",
		Checksums: []checksum{{"SHA256", sum}},
	}
	d.Packages = append(d.Packages, program)
	d.relate(documentID, "DESCRIBES", program.SPDXID)
	d.addModule(program.SPDXID, "stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.addModule(program.SPDXID, m.Path, m.Version)
	}
	return nil
}

func (d *document) addModule(program, path, version string) {
	id := "SPDXRef-Module-" + fmt.Sprintf("%x", sha256.Sum256([]byte(path+"@"+version)))[:16]
	d.relate(program, "DEPENDS_ON", id)
	if slices.ContainsFunc(d.Packages, func(s software) bool { return s.SPDXID == id }) {
		return
	}
	d.Packages = append(d.Packages, software{
		SPDXID: id, Name: path, VersionInfo: version, DownloadLocation: unknown,
		LicenseConcluded: unknown, LicenseDeclared: unknown, CopyrightText: unknown, Purpose: "LIBRARY",
		ExternalRefs: []externalRef{{"PACKAGE-MANAGER", "purl", fmt.Sprintf("pkg:golang/%s@%s", path, version)}},
	})
}

func (d *document) relate(element, kind, related string) {
	d.Relationships = append(d.Relationships, relationship{element, kind, related})
}

// tidy gives the document its order, and a name that only this content has.
func (d *document) tidy() {
	slices.SortFunc(d.Packages, func(a, b software) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.VersionInfo, b.VersionInfo))
	})
	slices.SortFunc(d.Relationships, func(a, b relationship) int {
		return cmp.Or(cmp.Compare(a.Element, b.Element), cmp.Compare(a.Related, b.Related))
	})
	d.Relationships = slices.Compact(d.Relationships)
	content, _ := json.Marshal(d.Packages)
	d.DocumentNamespace = fmt.Sprintf("https://outrigger.dev/spdx/%s-%x", d.Name, sha256.Sum256(content))
}
