;; Gives a glob that a naive matcher takes exponential time for.
;; want: OutOfFuelError AccessError: used up|glob
(data (i32.const 0) "metadata.labels")
(data (i32.const 32) "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b")
(func $bad (loop $l
  (drop (call $remove_keys_glob (i32.const 1) (i32.const 0) (i32.const 15) (i32.const 32) (i32.const 55)))
  (br $l)))
