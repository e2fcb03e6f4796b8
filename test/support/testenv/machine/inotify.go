// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	inotifyInstances = "/proc/sys/fs/inotify/max_user_instances"
	// minInotifyInstances is sufficient for several networks at the same time. A Kubernetes node with a control plane
	// needs about 50 instances. The usual limit of a computer is 128 for all processes of a user, and containerd does
	// not start if it is exceeded.
	minInotifyInstances = 2048
)

// raiseInotifyLimit raises the limit in the file at path to min, unless it is already at least min. The limit is not
// lowered again, because another process may rely on it.
func raiseInotifyLimit(path string, min int) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return fmt.Errorf("reading %s, %w", path, err)
	}
	if limit >= min {
		return nil
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(min)), 0o600); err != nil {
		return fmt.Errorf("raising the limit of inotify instances from %d to %d, %w (run as root of this computer: sysctl fs.inotify.max_user_instances=%d)", limit, min, err, min)
	}
	return nil
}
