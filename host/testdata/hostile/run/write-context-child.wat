;; Writes to a value inside the context.
;; want: AccessError: read-only
(data (i32.const 0) "offloadingPatch")
(func $bad (drop (call $set_map (call $get (i32.const 2) (i32.const 0) (i32.const 15)) (i32.const 0) (i32.const 4))))
