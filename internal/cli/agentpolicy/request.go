// SPDX-License-Identifier: Apache-2.0

package agentpolicy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/outrigger/outrigger/internal/guest/policy"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// Input returns what a policy is given for a request, by the name of its message and with the fields in text as policies name them, in
// JSON. Other fields are as an agent has those that are not set. Names that the protocol does not have are errors.
func Input(name string, text []byte) (map[string]any, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("grpc." + name))
	if err != nil || !strings.HasSuffix(name, "Request") {
		return nil, fmt.Errorf("the agent's protocol has no request %.60q: want one such as CreateContainerRequest, ExecProcessRequest, ReadStreamRequest, CopyFileRequest", name)
	}
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // some have more digits than a float64
	if err := decoder.Decode(&fields); err != nil {
		return nil, fmt.Errorf("the input is not a JSON object: %w", err)
	}
	if decoder.More() {
		return nil, errors.New("the input is more than one JSON value")
	}
	// These are not of the protocol: policy.Input makes them of a file's mode and data.
	given := map[string]any{}
	for _, made := range []string{"file_type", "symlink_target"} {
		if value, is := fields[made]; is && name == "CopyFileRequest" {
			given[made] = value
			delete(fields, made)
		}
	}
	if text, err = json.Marshal(asInProto(fields)); err != nil {
		return nil, err
	}
	request := kind.New().Interface()
	if err := protojson.Unmarshal(text, request); err != nil {
		return nil, fmt.Errorf("the input is not a %s: %w", name, err)
	}
	input := policy.Input(request)
	maps.Copy(input, given)
	return input, nil
}

// asInProto undoes what Rust calls fields named type.
func asInProto(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = asInProto(value)
		}
		if value, is := v["type_"]; is {
			delete(v, "type_")
			v["type"] = value
		}
	case []any:
		for i := range v {
			v[i] = asInProto(v[i])
		}
	}
	return v
}

// Exec returns what a policy is given for a command in a container, as containerd makes it of the container's own process, which a policy of
// [Generate] tells. The container need not be named if there is one only. To other policies it is the command alone, as root.
func Exec(text, name string, command []string) (map[string]any, error) {
	process := &agent.Process{Args: command, User: &agent.User{}}
	if _, data, ours := strings.Cut(text, podRule); ours {
		var p pod
		if err := json.Unmarshal([]byte(data), &p); err != nil {
			return nil, fmt.Errorf("the policy's pod: %w", err)
		}
		names := slices.Sorted(maps.Keys(p.Containers))
		if name == "" && len(names) == 1 {
			name = names[0]
		}
		c, is := p.Containers[name]
		if !is {
			return nil, fmt.Errorf("container %q: the pod has %s", name, strings.Join(names, ", "))
		}
		process.Env, process.Cwd, process.User.UID = c.Env, c.Cwd, uint32(c.UID)
		process.Capabilities = &agent.LinuxCapabilities{Bounding: c.Capabilities, Effective: c.Capabilities, Permitted: c.Capabilities}
	} else if name != "" {
		return nil, errors.New("the policy is not one of `outrigger policy generate`, and does not say what its containers are: give the whole request with --request ExecProcessRequest --input FILE")
	}
	return policy.Input(&agent.ExecProcessRequest{Process: process}), nil
}
