// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Parse reads a document strictly. It must begin with the line "#cloud-config" and be
// one mapping whose only key is write_files. Each entry must have path and content,
// and may have the other keys of [WriteFile]. Anything else (unknown or duplicate
// keys, anchors, aliases, tags, a second document, more than [MaxSize] bytes) is an
// error that names the line. Errors never quote content, which holds secrets.
func Parse(data []byte) (*CloudConfig, error) {
	if err := checkDocument(data); err != nil {
		return nil, fmt.Errorf("user-data: %w", err)
	}
	root, err := parseYAML(data)
	if err != nil {
		return nil, fmt.Errorf("user-data: %w", err)
	}
	config, err := decodeRoot(root)
	if err != nil {
		return nil, fmt.Errorf("user-data: %w", err)
	}
	return config, nil
}

func checkDocument(data []byte) error {
	if len(data) > MaxSize {
		return fmt.Errorf("%d bytes, limit %d", len(data), MaxSize)
	}
	first, _, _ := bytes.Cut(data, []byte("\n"))
	if string(bytes.TrimRight(first, " \t\r")) != header {
		return fmt.Errorf("the first line is not %s", header)
	}
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	return nil
}

// parseYAML returns the root of the only document. Package yaml's syntax errors name a
// line and a grammar rule, never a value.
func parseYAML(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, errors.New("no document")
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the document")
	}
	return doc.Content[0], nil
}

func decodeRoot(root *yaml.Node) (*CloudConfig, error) {
	var config CloudConfig
	found := false
	err := eachKey(root, func(key string, value *yaml.Node) error {
		if key != "write_files" {
			return fmt.Errorf("unknown key %q: only write_files is allowed", key)
		}
		found = true
		var err error
		config.WriteFiles, err = decodeFiles(value)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errors.New("write_files is missing")
	}
	return &config, nil
}

func decodeFiles(list *yaml.Node) ([]WriteFile, error) {
	if err := expect(list, yaml.SequenceNode, "a list"); err != nil {
		return nil, fmt.Errorf("write_files: %w", err)
	}
	var files []WriteFile
	for i, node := range list.Content {
		file, err := decodeFile(node)
		if err != nil {
			return nil, fmt.Errorf("write_files[%d]: %w", i, err)
		}
		files = append(files, file)
	}
	return files, nil
}

func decodeFile(node *yaml.Node) (WriteFile, error) {
	var file WriteFile
	hasContent := false
	err := eachKey(node, func(key string, value *yaml.Node) error {
		hasContent = hasContent || key == "content"
		return file.set(key, value)
	})
	if err != nil {
		return WriteFile{}, err
	}
	if !hasContent {
		return WriteFile{}, fmt.Errorf("line %d: content is missing", node.Line)
	}
	if err := file.decode(); err != nil {
		return WriteFile{}, fmt.Errorf("line %d: %w", node.Line, err)
	}
	return file, nil
}

func (f *WriteFile) set(key string, value *yaml.Node) error {
	if err := expect(value, yaml.ScalarNode, "a string"); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	switch key {
	case "path":
		f.Path = value.Value
	case "content":
		f.Content = value.Value
	case "owner":
		f.Owner = value.Value
	case "permissions":
		f.Permissions = value.Value
	case "encoding":
		f.Encoding = value.Value
	case "append":
		return f.setAppend(value)
	default:
		return fmt.Errorf("line %d: unknown key %q", value.Line, key)
	}
	return nil
}

func (f *WriteFile) setAppend(value *yaml.Node) error {
	switch value.Value {
	case "true":
		f.Append = true
	case "false":
	default:
		return fmt.Errorf("line %d: append is neither true nor false", value.Line)
	}
	return nil
}

// decode checks the entry and undoes its encoding.
func (f *WriteFile) decode() error {
	if err := f.check(); err != nil {
		return err
	}
	if f.Encoding != EncodingBase64 && f.Encoding != "base64" {
		return nil
	}
	content, err := base64.StdEncoding.DecodeString(strings.TrimSpace(f.Content))
	if err != nil {
		return fmt.Errorf("content of %s is not base64", f.Path)
	}
	f.Content = string(content)
	return nil
}

// eachKey calls visit for every pair of a mapping and fails on duplicate keys.
func eachKey(node *yaml.Node, visit func(key string, value *yaml.Node) error) error {
	if err := expect(node, yaml.MappingNode, "a mapping"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if err := expect(key, yaml.ScalarNode, "a key"); err != nil {
			return err
		}
		if seen[key.Value] {
			return fmt.Errorf("line %d: key %q is there twice", key.Line, key.Value)
		}
		seen[key.Value] = true
		if err := visit(key.Value, node.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// expect refuses nodes of another kind, and anchors and explicit tags: no writer needs
// these, and two parsers may read them differently.
func expect(node *yaml.Node, kind yaml.Kind, what string) error {
	switch {
	case node.Kind != kind:
		return fmt.Errorf("line %d: not %s", node.Line, what)
	case node.Anchor != "" || node.Style&yaml.TaggedStyle != 0:
		return fmt.Errorf("line %d: anchors and tags are not allowed", node.Line)
	case node.Tag == "!!null":
		return fmt.Errorf("line %d: empty value, not %s", node.Line, what)
	}
	return nil
}
