// SPDX-License-Identifier: Apache-2.0

// Package site looks at a site of static files: whether its links, anchors and
// assets are there, and whether it needs any other host.
package site

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/net/html"
)

// page is what is looked at of an HTML file.
type page struct {
	title  string
	ids    map[string]bool
	links  []string // where a reader may go
	assets []string // what a browser fetches by itself
}

// Site is a folder of files, by their paths.
type Site struct {
	files map[string]bool
	pages map[string]*page
	texts map[string]string // scripts and styles
}

// Load reads the site in a folder.
func Load(folder string) (*Site, error) {
	s := &Site{files: map[string]bool{}, pages: map[string]*page{}, texts: map[string]string{}}
	return s, filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		s.files[name] = true
		data, err := os.ReadFile(file)
		switch filepath.Ext(name) {
		case ".html":
			if s.pages[name], err = parse(string(data)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		case ".js", ".css":
			s.texts[name] = string(data)
		}
		return err
	})
}

func parse(text string) (*page, error) {
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	p := &page{ids: map[string]bool{}}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			p.add(n)
		}
	}
	return p, nil
}

func (p *page) add(n *html.Node) {
	attribute := map[string]string{}
	for _, a := range n.Attr {
		attribute[a.Key] = a.Val
	}
	if id := attribute["id"]; id != "" {
		p.ids[id] = true
	}
	if cast := attribute["data-cast-file"]; cast != "" {
		p.assets = append(p.assets, cast)
	}
	switch n.Data {
	case "title":
		if n.Parent.Data == "head" && n.FirstChild != nil {
			p.title = n.FirstChild.Data
		}
	case "a":
		if href, is := attribute["href"]; is {
			p.links = append(p.links, href)
		}
	case "link":
		if attribute["rel"] != "canonical" {
			p.assets = append(p.assets, attribute["href"])
		}
	case "img", "script", "iframe", "source", "video", "audio", "embed":
		if src := attribute["src"]; src != "" {
			p.assets = append(p.assets, src)
		}
	}
}

var comment = regexp.MustCompile(`(?s)/\*.*?\*/`)

// elsewhere is an address of another host, in a script or a style.
var elsewhere = regexp.MustCompile(`https?://[a-zA-Z0-9.-]+`)

// notFetched are addresses in scripts and styles that nothing is fetched from: the
// names of XML's namespaces, and a base for URL().
var notFetched = map[string]bool{"http://www.w3.org": true, "http://localhost": true}

// Faults returns what is wrong with a site. Links to files of the repository are
// looked up in the folder repository, where the site says that it is at address.
func (s *Site) Faults(repository, address string) []string {
	var faults []string
	for name, p := range s.pages {
		if name == "404.html" { // the theme's, the same for all sites
			continue
		}
		if p.title == "" {
			faults = append(faults, name+": it has no title")
		}
		for _, asset := range p.assets {
			if other(asset) {
				faults = append(faults, fmt.Sprintf("%s: it fetches %s from another host", name, asset))
			} else if !s.files[s.file(name, asset)] {
				faults = append(faults, fmt.Sprintf("%s: there is no file %s", name, asset))
			}
		}
		for _, link := range p.links {
			if fault := s.linkFault(name, link, repository, address); fault != "" {
				faults = append(faults, name+": "+fault)
			}
		}
	}
	for name, text := range s.texts {
		for _, found := range elsewhere.FindAllString(comment.ReplaceAllString(text, ""), -1) {
			if !notFetched[found] {
				faults = append(faults, fmt.Sprintf("%s: it has the address %s", name, found))
			}
		}
	}
	return faults
}

func other(link string) bool {
	return strings.Contains(link, "://") || strings.HasPrefix(link, "//")
}

// file returns the file that a link of a page leads to.
func (s *Site) file(from, link string) string {
	link, _, _ = strings.Cut(link, "#")
	link, _, _ = strings.Cut(link, "?")
	if link == "" {
		return from
	}
	name := path.Join(path.Dir(from), link)
	if strings.HasPrefix(link, "/") {
		name = strings.TrimPrefix(path.Clean(link), "/")
	}
	if !s.files[name] {
		name = path.Join(name, "index.html")
	}
	return name
}

func (s *Site) linkFault(from, link, repository, address string) string {
	if rest, is := strings.CutPrefix(link, address+"/"); is {
		return repositoryFault(rest, repository)
	}
	if other(link) || strings.HasPrefix(link, "mailto:") {
		return ""
	}
	name := s.file(from, link)
	if !s.files[name] {
		return fmt.Sprintf("the link %s leads nowhere", link)
	}
	_, anchor, _ := strings.Cut(link, "#")
	if p := s.pages[name]; anchor != "" && (p == nil || !p.ids[anchor]) {
		return fmt.Sprintf("the link %s leads to no place of that page", link)
	}
	return ""
}

// repositoryFault looks for the file of "blob/REF/FILE".
func repositoryFault(rest, repository string) string {
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) < 3 || parts[0] != "blob" && parts[0] != "tree" && parts[0] != "edit" {
		return ""
	}
	file, _, _ := strings.Cut(parts[2], "#")
	if _, err := os.Stat(filepath.Join(repository, file)); err != nil {
		return fmt.Sprintf("the repository has no %s", file)
	}
	return ""
}
