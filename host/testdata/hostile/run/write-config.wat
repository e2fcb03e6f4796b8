;; Writes to its configuration.
;; want: AccessError: read-only
(data (i32.const 0) "spec")
(func $bad (drop (call $set_map (i32.const 3) (i32.const 0) (i32.const 4))))
