// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// Input returns a request as kata-agent gives it to policies: fields by their names in its proto files, those that are not set
// as well. Bytes are left out: policies do not look at what is copied or written.
func Input(request proto.Message) map[string]any {
	input := fields(request.ProtoReflect())
	if file, is := request.(*agent.CopyFileRequest); is {
		// Of a file's mode and a link's data kata-agent's policies (since 3.23) have these.
		kind, target := "Unknown", any(nil)
		switch file.GetFileMode() & unix.S_IFMT {
		case unix.S_IFREG:
			kind = "Regular"
		case unix.S_IFDIR:
			kind = "Directory"
		case unix.S_IFLNK:
			kind, target = "Symlink", string(file.GetData())
		}
		input["file_type"], input["symlink_target"] = kind, target
	}
	return input
}

func fields(m protoreflect.Message) map[string]any {
	all := m.Descriptor().Fields()
	out := make(map[string]any, all.Len())
	for i := range all.Len() {
		f := all.Get(i)
		if f.Kind() != protoreflect.BytesKind {
			out[nameOf(f)] = field(m, f)
		}
	}
	return out
}

// nameOf returns a field's name in kata-agent, which is written in Rust: there type is a keyword.
func nameOf(f protoreflect.FieldDescriptor) string {
	if f.Name() == "type" {
		return "type_"
	}
	return string(f.Name())
}

func field(m protoreflect.Message, f protoreflect.FieldDescriptor) any {
	value := m.Get(f)
	switch {
	case f.IsMap():
		out := map[string]any{}
		for key, v := range value.Map().Range {
			out[key.String()] = scalar(f.MapValue(), v)
		}
		return out
	case f.IsList():
		out := make([]any, value.List().Len())
		for i := range out {
			out[i] = scalar(f, value.List().Get(i))
		}
		return out
	case f.Message() != nil && !m.Has(f):
		return nil
	}
	return scalar(f, value)
}

// scalar returns what Rego has: its numbers are of any size.
func scalar(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch {
	case f.Message() != nil:
		return fields(v.Message())
	case f.Kind() == protoreflect.EnumKind:
		return int64(v.Enum())
	}
	return v.Interface()
}
